"""Choices from the most exact to the cheapest, under the assumption that errors add up.

Every group has points (cost, error), one an option. The lower convex hull of a group's points
says which options are worth taking; going down all hulls at once, always where an error buys the
most, gives choices of which none is cheaper with less error (of those on hulls).
"""

import math
from collections.abc import Sequence
from itertools import pairwise

Points = Sequence[tuple[float, float]]  # (cost, error) of each option of a group
Choice = tuple[int, ...]  # an option for each group


def hull(points: Points) -> list[int]:
    """The options worth taking: from the least error to the least cost, at growing prices.

    An option without a finite error is never worth it, unless there is no other.
    """
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


def total(groups: Sequence[Points], choice: Choice) -> tuple[float, float]:
    """Cost and error of a choice."""
    costs, errors = zip(*(points[i] for points, i in zip(groups, choice, strict=True)), strict=True)
    return math.fsum(costs), math.fsum(errors)


def within(groups: Sequence[Points], limit: float) -> Choice | None:
    """The choice of least error found whose cost is at most `limit`; None when none is.

    The first on the frontier, then what is left is spent on the groups where it helps most.
    """
    path = frontier(groups)
    found = next((c for c in path if total(groups, c)[0] <= limit), None)
    if found is None:
        return None
    current = list(found)
    while True:
        left = limit - total(groups, tuple(current))[0]
        gains = [
            (points[now][1] - points[i][1], g, i)
            for g, (points, now) in enumerate(zip(groups, current, strict=True))
            for i in range(len(points))
            if points[i][0] - points[now][0] <= left and points[i][1] < points[now][1]
        ]
        if not gains:
            return tuple(current)
        _, g, i = max(gains)
        current[g] = i
