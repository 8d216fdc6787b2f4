"""Latency of each option, measured: its op alone, compiled as the pipeline would, on this machine.

The latency of a choice is that of the float program, plus what each op saves or costs. What
fusion changes is not seen; the compiled choice is measured in the end.
"""

import glob
import time
from dataclasses import replace
from typing import Any

import numpy as np

from jq.artifact.keys import digest
from jq.base.progress import Progress, Stages
from jq.base.system.processor import this_processor
from jq.driver.compiled import CompiledModel
from jq.driver.job import Job
from jq.driver.stages import build, plan_job
from jq.frontends.source import Source
from jq.mixed_precision.choice.groups import Group, trips
from jq.mixed_precision.choice.problem import Problem
from jq.mixed_precision.choice.rules import with_rules
from jq.mixed_precision.costs import Resource
from jq.mixed_precision.single import single
from jq.mixed_precision.state import State
from jq.planning.operands import contractions, op_name
from jq.reporting.benchmark import random_inputs
from jq.target.rules import Rule
from jq.target.settings import FLOAT

SECONDS, LEAST = 0.2, 10  # measuring time of a program, and calls at least
AS_FLOAT = {"format": FLOAT}


def latency_of(problem: Problem, state: State, progress: Progress) -> Resource:
    """The share of each option in the milliseconds of the model with all groups in float."""
    watch = _Watch(problem, state)
    progress("latency of the model", None)
    whole = watch.model()
    options, saved = [], 0.0
    for i, group in enumerate(problem.groups):
        progress("latency of layers", i / len(problem.groups))
        saved += watch.ops(group, AS_FLOAT)
        own = [watch.ops(group, option.candidate.rule) for option in group.options]
        options.append([ms / whole for ms in own])
    return Resource("latency", options, (whole - saved) / whole, whole)


class _Watch:
    """Measures ops and the model, each once; equal ops are one."""

    def __init__(self, problem: Problem, state: State) -> None:
        self.problem, self.job, self.state = problem, problem.job, state
        self._ops = {op_name(op): op for op, _ in contractions(self.job.program)}

    def model(self) -> float:
        names = [name for group in self.problem.groups for name in group.ops]
        rules = [Rule(pattern=glob.escape(name), override=AS_FLOAT) for name in names]
        return self._measured(self.job, rules, f"model {digest(names)}")

    def ops(self, group: Group, overrides: dict[str, Any]) -> float:
        """Milliseconds that a group takes in one call of the model."""
        total = 0.0
        for name in group.ops:
            program = single(self.job.program, self._ops[name])
            job = replace(
                self.job,
                source=Source(program),
                program=program,
                data=None,
                prepared=replace(self.job.prepared, recover=False),
            )
            key = digest(program.text().replace(name, ""), overrides)
            rules = [Rule(pattern="*", override=overrides)]
            total += trips(self.job.program, self._ops[name]) * self._measured(job, rules, key)
        return total

    def _measured(self, job: Job, rules: list[Rule], key: str) -> float:
        key = f"latency {this_processor().model} {key}"
        known = self.state.get(key)
        if known is None:
            changed = with_rules(job, rules)
            known = median_ms(build(changed, plan_job(changed, Stages()), Stages()))
            self.state.put(key, known)
        return known


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
