"""Ops that can be drawn: each function adds one to a graph, or says None where none fits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from suites.differential.graph import SIZES, STEP, Graph, Value

Drawer = Callable[[Graph], "Value | None"]
DRAWERS: dict[str, tuple[Drawer, int]] = {}  # by name, and how often


def drawer(name: str, often: int = 2) -> Callable[[Drawer], Drawer]:
    def register(function: Drawer) -> Drawer:
        assert name not in DRAWERS, name
        DRAWERS[name] = function, often
        return function

    return register


def is_float(v: Value) -> bool:
    return v.is_float


def is_integer(v: Value) -> bool:
    return not v.is_float and v.kind != "i1"


def has_axis(v: Value) -> bool:
    return bool(v.shape)


def is_row(v: Value) -> bool:
    return v.is_float and bool(v.shape)


def axis_of(g: Graph, v: Value) -> int:
    return int(g.rng.integers(len(v.shape)))


def partner(g: Graph, v: Value) -> Value:
    """Another value of the type of `v`: one that is there, or it mirrored."""
    if (there := g.pick(lambda u: u.type == v.type and u.name != v.name)) and g.chance(0.7):
        return there
    if not v.shape:
        return v
    return g.moved("reverse", v, v.shape, f"dimensions = array<i64: {axis_of(g, v)}>")


def shape_of(g: Graph, rank: int | None = None) -> tuple[int, ...]:
    """Not too large; the last axis may be."""
    rank = int(g.rng.integers(1, 5)) if rank is None else rank
    small = [n for n in SIZES if n < 8]
    return (*(g.choose(small) for _ in range(rank - 1)), g.choose(SIZES))


def draw(g: Graph, most: int, without: Sequence[str] = ()) -> None:
    """Adds between 2 and `most` ops to a graph that has an input, none of them those."""
    names = [name for name in DRAWERS if name not in without]
    share = np.array([DRAWERS[name][1] for name in names], np.float64)
    wanted = 2 + int((most - 1) * g.rng.beta(1, 2))  # more small ones: a third of `most` on average
    for _ in range(4 * wanted):
        if ops_of(g) >= wanted:
            break
        name = str(g.rng.choice(names, p=share / share.sum()))
        before = len(g.lines), g.count, set(g.read), len(g.weights)
        found = DRAWERS[name][0](g)
        if found is None or ops_of(g) > most:  # what was begun is taken back
            del g.lines[before[0] :], g.weights[before[3] :]
            g.count, g.read = before[1], before[2]
            continue
        g.names.append(name)
        g.keep(found)


def ops_of(g: Graph) -> int:
    return sum('"stablehlo.constant"' not in line for line in g.lines)


def back(g: Graph, v: Value) -> Value:
    """A product's result: brought back where the pipeline rounds in front of it, and off the ties
    of that where it is not exact to the last place."""
    if not g.rounds:
        return v
    ties = g.splits and v.step < STEP
    return g.settle(v, offset=0.5 + v.step / STEP / 2 if ties else 0.0)
