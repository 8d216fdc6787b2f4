"""Cost of a choice: the sum of what its options cost, and of what is not up to choice."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from jq.artifact.description import float_weights
from jq.base.errors import UserError, check_known
from jq.driver.job import Job
from jq.mixed_precision.budget import RESOURCES, Budget
from jq.mixed_precision.groups import Group, Stored, bit_operations, op_facts, stored_bytes
from jq.planning.decisions import QuantPlan

# Choices from the most exact to the cheapest, under the assumption that errors add up. Every group
# has points (cost, error), one an option. The lower convex hull of a group's points says which
# options are worth taking; going down all hulls at once, always where an error buys the most, gives
# choices of which none is cheaper with less error (of those on hulls).
Points = Sequence[tuple[float, float]]  # (cost, error) of each option of a group
Choice = tuple[int, ...]  # an option for each group
Holds = Callable[[Choice], bool]
T = TypeVar("T")


def hull(points: Points) -> list[int]:
    """The options worth taking: from the least error to the least cost, at growing prices. An
    option without a finite error is never worth it, unless there is no other."""
    order = [i for i, (_, error) in enumerate(points) if math.isfinite(error)] or [0]
    order.sort(key=lambda i: (points[i][1], points[i][0]))
    path = [order[0]]
    for i in order[1:]:
        if points[i][0] >= points[path[-1]][0]:
            continue
        while len(path) > 1 and price(points, path[-1], i) <= price(points, path[-2], path[-1]):
            path.pop()
        path.append(i)
    return path


def price(points: Points, a: int, b: int) -> float:
    """The error that one unit of cost saved takes, from option a to the cheaper b."""
    return (points[b][1] - points[a][1]) / (points[a][0] - points[b][0])


def frontier(groups: Sequence[Points]) -> list[Choice]:
    """Choices from the least error to the least cost; each changes one group of the one before."""
    hulls = [hull(points) for points in groups]
    steps = sorted(
        (price(groups[g], a, b), g, k)
        for g, path in enumerate(hulls)
        for k, (a, b) in enumerate(pairwise(path))
    )
    current = [path[0] for path in hulls]
    choices = [tuple(current)]
    for _, g, k in steps:
        current[g] = hulls[g][k + 1]
        choices.append(tuple(current))
    return choices


def cheapest(path: Sequence[Choice], holds: Holds) -> int | None:
    """The last index of `path` that holds, by bisection; None when not even the first does."""
    if holds(path[-1]):
        return len(path) - 1
    if not holds(path[0]):
        return None
    low, high = 0, len(path) - 1  # holds, does not hold
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(path[middle]) else (low, middle)
    return low


def total(groups: Sequence[Points], choice: Choice) -> tuple[float, float]:
    """Cost and error of a choice."""
    costs, errors = zip(*(points[i] for points, i in zip(groups, choice, strict=True)), strict=True)
    return math.fsum(costs), math.fsum(errors)


def within(groups: Sequence[Points], holds: Holds) -> Choice | None:
    """The choice of least error found that holds; None when none of the frontier does. The first
    on the frontier, then what is left is spent on the groups where it helps most."""
    current = next(filter(holds, frontier(groups)), None)
    while current is not None:
        gains = [
            (points[now][1] - points[i][1], g, i)
            for g, (points, now) in enumerate(zip(groups, current, strict=True))
            for i in range(len(points))
            if points[i][1] < points[now][1]
        ]
        most = sorted(gains, reverse=True)
        changed = [(*current[:g], i, *current[g + 1 :]) for _, g, i in most]
        better = next(filter(holds, changed), None)
        if better is None:
            break
        current = better
    return current


def spread(calls: Sequence[T], count: int) -> list[T]:
    """At most `count` calls, one at least where there are any, evenly from all."""
    step, count = max(1.0, len(calls) / max(count, 1)), max(count, 1)
    return [calls[int(i * step)] for i in range(min(count, len(calls)))]


USUAL = "size+work"


@dataclass(frozen=True)
class Resource:
    """One thing that runs out, in shares of what the float model takes of it.

    Attributes:
        options: what each option takes, by group.
        fixed: what the rest of the model takes.
        whole: what the float model takes, in the unit of a budget that has one."""

    name: str
    options: list[list[float]]
    fixed: float
    whole: float = 1.0

    def share(self, budget: Budget) -> float:
        """The limit of a budget as a share."""
        return budget.limit / self.whole if budget.unit else budget.limit

    def of(self, choice: Choice) -> float:
        return self.fixed + sum(options[i] for options, i in zip(self.options, choice, strict=True))


def check_least(resources: Mapping[str, Resource], budgets: Iterable[Budget]) -> None:
    """Refuses a budget below what the cheapest options take, before errors are measured."""
    for budget in budgets:
        if found := resources.get(budget.name):
            least = found.fixed + sum(map(min, found.options))
            if not budget.holds(least, found.share(budget)):
                what = f"budget {budget} cannot be met; the least of all candidates is {least:.4g}"
                raise UserError(what, hint="change the budget, or give other --candidates")


def dearer(groups: Sequence[Points], resource: Resource, price: float) -> list[Points]:
    """The points of options that cost more, by what they take of a resource."""
    pairs = zip(groups, resource.options, strict=True)
    return [[(c + price * r, e) for (c, e), r in zip(*pair, strict=True)] for pair in pairs]


def decibels(error: float) -> float:
    """SQNR of an error that is noise power over signal power."""
    return -10 * math.log10(error) if error > 0 else math.inf


def size_of(job: Job, groups: Sequence[Group], stored: Mapping[str, Stored]) -> Resource:
    """Stored bytes over those of the float model; `stored`: what the base pipeline stores."""
    source = float_weights(job.source.program).values()
    whole = sum(math.prod(w.shape) * np.dtype(w.dtype).itemsize for w in source) or 1
    floats, ours = job.program.weights, {name for group in groups for name in group.weights}
    rest = stored_bytes(floats.keys() - ours, stored, floats)
    options = [[o.stored_bytes / whole for o in group.options] for group in groups]
    return Resource("size", options, rest / whole)


def work_in(job: Job, groups: Sequence[Group], base: QuantPlan) -> Resource:
    """Bit operations over those of the float model."""
    facts = op_facts(job.program)
    whole = sum(f.products * f.bits**2 for f in facts.values()) or 1.0
    ours = {name for group in groups for name in group.ops}
    rest = (bit_operations(facts[op.name], op) for op in base.ops if op.name in facts.keys() - ours)
    options = [[o.work / whole for o in group.options] for group in groups]
    return Resource("work", options, sum(rest) / whole)


def objective(text: str, resources: Mapping[str, Resource]) -> list[list[float]]:
    """The cost of each option, by group: the sum of the resources that `text` names."""
    names = check_objective(text)
    parts = [resources[name].options for name in names]
    return [list(map(sum, zip(*groups, strict=True))) for groups in zip(*parts, strict=True)]


def check_objective(text: str) -> list[str]:
    """The resources that are to be saved: `size`, `work`, `latency`, or a sum of them."""
    names = [name.strip() for name in text.split("+")]
    for name in names:
        check_known("cost", name, RESOURCES)
    return names
