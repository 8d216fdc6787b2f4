"""Cost of a choice: the sum of what its options cost, and of what is not up to choice."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jq.artifact.description import float_weights
from jq.base.errors import UserError, known
from jq.driver.job import Job
from jq.mixed_precision.budget import RESOURCES, Budget
from jq.mixed_precision.choice.frontier import Choice
from jq.mixed_precision.choice.groups import Group, Stored, bit_operations, op_facts
from jq.planning.decisions import QuantPlan

USUAL = "size+work"


@dataclass(frozen=True)
class Resource:
    """One thing that runs out, in shares of what the float model takes of it.

    Attributes:
        options: what each option takes, by group.
        fixed: what the rest of the model takes.
        whole: what the float model takes, in the unit of a budget that has one.
    """

    name: str
    options: list[list[float]]
    fixed: float
    whole: float = 1.0

    def share(self, budget: Budget) -> float:
        """The limit of a budget as a share."""
        return budget.limit / self.whole if budget.unit else budget.limit

    def of(self, choice: Choice) -> float:
        pairs = zip(self.options, choice, strict=True)
        return self.fixed + sum(options[i] for options, i in pairs)


def size_of(job: Job, groups: Sequence[Group], stored: Mapping[str, Stored]) -> Resource:
    """Stored bytes over those of the float model; `stored`: what the base pipeline stores."""
    source = float_weights(job.source.program).values()
    whole = sum(math.prod(w.shape) * np.dtype(w.dtype).itemsize for w in source) or 1
    ours = {name for group in groups for name in group.weights}
    rest = (
        (stored.get(name) or array).nbytes
        for name, array in job.program.weights.items()
        if name not in ours
    )
    options = [[o.stored_bytes / whole for o in group.options] for group in groups]
    return Resource("size", options, sum(rest) / whole)


def work_in(job: Job, groups: Sequence[Group], base: QuantPlan) -> Resource:
    """Bit operations over those of the float model."""
    facts = {f.name: f for f in op_facts(job.program)}
    whole = sum(f.products * f.bits**2 for f in facts.values()) or 1.0
    ours = {name for group in groups for name in group.ops}
    rest = (bit_operations(facts[op.name], op) for op in base.ops if op.name in facts.keys() - ours)
    options = [[o.work / whole for o in group.options] for group in groups]
    return Resource("work", options, sum(rest) / whole)


def objective(text: str, resources: Mapping[str, Resource]) -> list[list[float]]:
    """The cost of each option, by group: the sum of the resources that `text` names."""
    names = check_objective(text)
    parts = [resources[name].options for name in names]
    return [
        [sum(costs) for costs in zip(*groups, strict=True)] for groups in zip(*parts, strict=True)
    ]


def check_objective(text: str) -> list[str]:
    """The resources that are to be saved: `size`, `work`, `latency`, or a sum of them."""
    names = [name.strip() for name in text.split("+")]
    for name in names:
        if name not in RESOURCES:
            raise UserError(f"unknown cost {name!r}", hint=known(name, RESOURCES))
    return names
