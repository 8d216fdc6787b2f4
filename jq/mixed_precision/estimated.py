"""Latency of each option on a device that is not at hand, by `jq.estimate`.

Every candidate is planned for the whole model once, and what its ops take is read from the rows of
that estimate; everything else is fixed. Shares are of what the base pipeline takes, for the device
may have no floats.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from jq.device.assumed import planned_job
from jq.device.estimating import estimated
from jq.driver.job import Job
from jq.mixed_precision.choice.problem import Problem
from jq.mixed_precision.choice.rules import with_rules
from jq.mixed_precision.costs import Resource
from jq.target.rules import Rule


def estimated_latency(problem: Problem) -> Resource:
    """The share of each option in the milliseconds that the model takes with the base pipeline.

    Raises:
        UserError: a candidate needs products whose rate the target does not state.
    """
    whole, base = _milliseconds(problem.job)
    found = {
        o.candidate.name: _milliseconds(
            with_rules(problem.job, [Rule(pattern="*", override=o.candidate.rule)])
        )[1]
        for group in problem.groups
        for o in group.options
    }
    options = [
        [_of(found[o.candidate.name], group.ops) / whole for o in group.options]
        for group in problem.groups
    ]
    ours = sum(_of(base, group.ops) for group in problem.groups)
    return Resource("latency", options, (whole - ours) / whole, whole)


def estimated_ms(job: Job) -> float:
    """The time of the whole model as a job plans it."""
    return _milliseconds(job)[0]


def _milliseconds(job: Job) -> tuple[float, Counter[str]]:
    """The time of the model, and those of its layers by the name of their op."""
    prepared = replace(job.prepared, recover=False)  # the same ops, with other codes
    document, layers = estimated(planned_job(replace(job, prepared=prepared))), Counter[str]()
    ms = document["total_ms"] / (document["total_cycles"] or 1)
    for row in document["layers"]:
        layers[row["name"].partition("#")[0]] += row["cycles"] * ms
    return document["total_ms"], layers


def _of(layers: Counter[str], ops: Sequence[str]) -> float:
    return sum(layers[name] for name in ops)
