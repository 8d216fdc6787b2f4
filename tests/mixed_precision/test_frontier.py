"""The frontier against all choices there are."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jq
from jq.mixed_precision.budget import parse_budget
from jq.mixed_precision.choose import BudgetChooser, further
from jq.mixed_precision.costs import Resource, cheapest, frontier, hull, objective, total, within

POINTS = st.lists(
    st.tuples(st.integers(0, 20).map(float), st.integers(0, 20).map(float)), min_size=1, max_size=4
)
GROUPS = st.lists(POINTS, min_size=1, max_size=4)


def every(groups):
    return list(itertools.product(*(range(len(points)) for points in groups)))


def test_a_hull_by_hand():
    #          exact      above the hull  on it       dominated   cheapest
    points = [(10.0, 0.0), (8.0, 5.0), (6.0, 2.0), (7.0, 9.0), (1.0, 9.0)]
    assert hull(points) == [0, 2, 4]
    assert hull([(1.0, math.inf), (5.0, 1.0), (4.0, 1.0)]) == [2]
    assert hull([(1.0, math.inf)]) == [0]


@given(GROUPS)
def test_the_ends_are_the_most_exact_and_the_cheapest(groups):
    path = frontier(groups)
    costs, errors = zip(*(total(groups, c) for c in every(groups)), strict=True)
    assert total(groups, path[0])[1] == min(errors)
    assert total(groups, path[-1])[0] == min(costs)


@given(GROUPS)
def test_every_step_is_cheaper_and_less_exact(groups):
    path = frontier(groups)
    for before, after in itertools.pairwise(path):
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
        (cost, error), (next_cost, next_error) = total(groups, before), total(groups, after)
        assert next_cost < cost and next_error >= error


@given(GROUPS, st.floats(0.01, 100))
def test_points_of_the_frontier_are_optimal_for_some_price(groups, price):
    """The least of cost * price + error over the frontier is the least over all choices."""

    def both(choice):
        cost, error = total(groups, choice)
        return cost * price + error

    best = min(map(both, every(groups)))
    assert math.isclose(min(map(both, frontier(groups))), best, abs_tol=1e-9)


@given(GROUPS, st.floats(0, 60))
def test_within_a_limit(groups, limit):
    fitting = [total(groups, c) for c in every(groups) if total(groups, c)[0] <= limit]
    found = within(groups, lambda choice: total(groups, choice)[0] <= limit)
    assert (found is None) == (not fitting)
    if found is not None:
        cost, error = total(groups, found)
        assert cost <= limit
        on_path = [total(groups, c) for c in frontier(groups)]
        assert error <= min(e for c, e in on_path if c <= limit)


@given(GROUPS, st.floats(0, 60))
def test_the_cheapest_that_holds(groups, allowed):
    def holds(choice):
        return total(groups, choice)[1] <= allowed

    path = frontier(groups)
    index = cheapest(path, holds)
    holding = [i for i, choice in enumerate(path) if holds(choice)]
    assert index == (max(holding) if holding else None)
    if index is not None:
        better = further(groups, path[index], holds)
        assert holds(better) and total(groups, better)[0] <= total(groups, path[index])[0]


OPTIONS = {  # of a layer that is half of the model: its error, its size and work as shares
    "float": (0.0, 0.5, 0.5),
    "weights": (1.0, 0.125, 0.5),
    "activations": (1.5, 0.5, 0.03),
    "int8": (3.0, 0.125, 0.03),
}


def choose(cost: str, *texts: str) -> list[str]:
    """The options that two such layers get."""
    names = list(OPTIONS)
    errors, sizes, works = zip(*OPTIONS.values(), strict=True)
    resources = {k: Resource(k, [list(v)] * 2, 0.0) for k, v in (("size", sizes), ("work", works))}
    points = [list(zip(prices, errors, strict=True)) for prices in objective(cost, resources)]
    layer = SimpleNamespace(options=[SimpleNamespace(name=name) for name in names])
    budgets, layers = list(map(parse_budget, texts)), cast("Any", [layer] * 2)
    chooser = BudgetChooser(layers, points, resources, budgets, cast("Any", None))
    return sorted(names[i] for i in chooser.choose())


@pytest.mark.parametrize("cost", ["size", "work", "size+work"])
def test_every_limit_is_kept_whatever_is_saved(cost):
    assert choose(cost, "size<=1") == ["float"] * 2
    assert choose(cost, "size<=0.3") == ["weights"] * 2
    assert choose(cost, "work<=0.1") == ["activations"] * 2
    assert choose(cost, "size<=0.3", "work<=0.1") == ["int8"] * 2
    assert choose(cost, "work<=0.1", "size<=0.3") == ["int8"] * 2
    assert choose(cost, "size<=0.7", "work<=0.1") == ["activations", "int8"]
    with pytest.raises(jq.UserError, match=r"size<=0.2 cannot be met; the best reached is 0.25 "):
        choose(cost, "size<=0.2", "work<=0.1")
