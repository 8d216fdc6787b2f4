"""Latency of each option: of a device that is not at hand by `jq.estimate`, on this machine as the
share that `jq.mixed_precision.speed` estimates of a latency that is measured.

What fusion changes is not seen; the compiled choice is measured in the end.
"""

import glob
import time
from collections import Counter
from dataclasses import replace

import numpy as np

from jq.artifact.keys import digest
from jq.base.progress import Stages
from jq.base.system.processor import this_processor
from jq.device.assumed import planned_job
from jq.device.estimating import estimated
from jq.driver.compiled import CompiledModel
from jq.driver.job import Job
from jq.driver.stages import build, plan_job
from jq.mixed_precision.costs import Resource
from jq.mixed_precision.evaluate import State
from jq.mixed_precision.problem import Problem, with_rules
from jq.mixed_precision.speed import estimated_shares
from jq.reporting.benchmark import random_inputs
from jq.target.rules import Rule
from jq.target.settings import FLOAT

SECONDS, LEAST = 0.2, 10  # measuring time of a program, and calls at least


def latency_of(problem: Problem, state: State) -> Resource:
    """The share of each option in the milliseconds of the model with all groups in float."""
    names = [name for group in problem.groups for name in group.ops]
    key = f"latency {this_processor().model} {digest(names)}"
    if key not in state.values:
        rules = [Rule(pattern=glob.escape(name), override={"format": FLOAT}) for name in names]
        job = with_rules(problem.job, rules)
        state.put(key, median_ms(build(job, plan_job(job, Stages()), Stages())))
    return replace(estimated_shares(problem), name="latency", whole=state.values[key])


def estimated_latency(problem: Problem) -> Resource:
    """The share of each option in the milliseconds that the model takes with the base pipeline, for
    the device may have no floats. Every candidate is planned for the whole model once, and what its
    ops take is read from the rows of that estimate; everything else is fixed.

    Raises:
        UserError: a candidate needs products whose rate the target does not state.
    """
    job, groups = problem.job, problem.groups
    whole, base = milliseconds(job)
    rules = {o.candidate.name: o.candidate.rule for group in groups for o in group.options}
    found = {
        name: milliseconds(with_rules(job, [Rule(pattern="*", override=rule)]))[1]
        for name, rule in rules.items()
    }
    options = [
        [sum(found[o.candidate.name][op] for op in group.ops) / whole for o in group.options]
        for group in groups
    ]
    ours = sum(base[op] for group in groups for op in group.ops)
    return Resource("latency", options, (whole - ours) / whole, whole)


def milliseconds(job: Job) -> tuple[float, Counter[str]]:
    """The time of the model as a job plans it, and those of its layers by the name of their op."""
    prepared = replace(job.prepared, recover=False)  # the same ops, with other codes
    document, layers = estimated(planned_job(replace(job, prepared=prepared))), Counter[str]()
    ms = document["total_ms"] / (document["total_cycles"] or 1)
    for row in document["layers"]:
        layers[row["name"].partition("#")[0]] += row["cycles"] * ms
    return document["total_ms"], layers


def median_ms(compiled: CompiledModel) -> float:
    """Median milliseconds of a call on one thread, with random inputs."""
    inputs = random_inputs(compiled.inputs)
    times: list[float] = []
    compiled.call_flat(inputs)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < LEAST:
        start = time.perf_counter()
        compiled.call_flat(inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times))
