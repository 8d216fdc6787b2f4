"""A sample of `scripts/suite.py differential`: graphs of every kind, and a wrong one is seen."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

SAMPLE = 6  # graphs of a kind
KINDS = 8
# Batches whose formats have scales that are easily no powers of two.
WEIGHTS = (1, 2, 10, 33, 41, 42, 82, 170, 186, 338, 378)


def cases(kind: int, iree: bool = False) -> list[Any]:
    from suites.differential.judge import TOGETHER, Case

    return [Case(kind * TOGETHER + i, iree) for i in range(SAMPLE)]


@pytest.mark.parametrize("kind", range(KINDS))
def test_drawn_graphs(judged, kind: int) -> None:
    from suites.differential.judge import judge
    from suites.outcome import REFUSED, RIGHT

    found = judged(judge, cases(kind, iree=kind == 3))
    assert [one for one in found if one.verdict not in (RIGHT, REFUSED)] == []
    assert sum(one.verdict == RIGHT for one in found) > SAMPLE / 2


def test_graphs_hold_every_op() -> None:
    from suites.differential.draw import ops_of
    from suites.differential.judge import TOGETHER
    from suites.differential.kinds import kind_of
    from suites.differential.modules import DRAWERS, MOST, drawn

    graphs = [drawn(seed, kind_of(seed // TOGETHER)) for seed in range(300)]
    counts = Counter(name for g in graphs for name in g.names)
    assert set(counts) == set(DRAWERS)
    assert {2, MOST} <= {ops_of(g) for g in graphs}
    assert all(ops_of(g) <= MOST for g in graphs)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_drawn_weights_are_exact(kind: int) -> None:
    """Each format makes multiples of a power of two, of few bits, of a drawn weight."""
    from suites.differential.graph import Graph
    from suites.differential.judge import evaluated
    from suites.differential.kinds import Kind, kind_of
    from suites.differential.modules import module_of
    from suites.differential.movement import rows_of
    from suites.differential.products import product

    known = kind_of(kind)
    known = Kind(known.pipeline, known.settings)
    g = Graph(np.random.default_rng(kind), "g", True, known.codes, known.rows)
    for rows, dtype in ((1, "f32"), (33, "f32"), (96, "f32"), (33, "bf16"), (33, "f16")):
        x = g.input((rows, rows), dtype)
        g.inputs[-1] = x, np.eye(rows).astype(g.inputs[-1][1].dtype)
        g.keep(product(g, x, g.weight((rows, 5), dtype, 0), [1], [0], (rows, 5), rows))
    table, at = g.weight((9, 32), "f32", 1, rows=True), g.constant(np.arange(9), "i32")
    g.keep(rows_of(g, table, at, 0))
    most = max(128, known.codes.high)
    (decoded,) = evaluated(module_of([g], 1), known, False, False)["the interpreter"][0]
    for array in decoded:
        wide = array.astype(np.float64)
        unit = next(k for k in range(-9, 60) if _whole(wide * 2.0**k))
        assert np.abs(wide).max() * 2.0**unit <= most, known


@pytest.mark.parametrize("by", [3.0, -7.0])
def test_no_quotient_is_a_tie(by: float) -> None:
    """The compiler divides the weights of a product, whose sums are then inexact."""
    from suites.differential.elementwise import divided
    from suites.differential.evaluate import difference
    from suites.differential.graph import Graph
    from suites.differential.judge import evaluated
    from suites.differential.kinds import Kind
    from suites.differential.modules import module_of
    from suites.differential.products import product

    g = Graph(np.random.default_rng(0))
    x = g.input((1000, 16), "f32")
    v = product(g, x, g.weight((16, 2), "f32", 0), [1], [0], (1000, 2), 16)
    g.keep(divided(g, v, by))
    results = evaluated(module_of([g], 1), Kind("float"), False, True)
    assert difference({name: found[0][0] for name, found in results.items()}) == ""


def test_digits_of_floats_make_no_tie() -> None:
    """The scale of a row's digits is rounded: a product may be off in its last place."""
    from suites.differential.draw import back
    from suites.differential.evaluate import difference
    from suites.differential.graph import Graph
    from suites.differential.judge import evaluated
    from suites.differential.kinds import Kind
    from suites.differential.modules import module_of
    from suites.differential.products import product

    kind = Kind("int8-weight-only", ("recovery=false", "min_elements=1"))
    g = Graph(np.random.default_rng(2), rounds=kind.rounds, splits=kind.splits)
    x = g.input((3, 1, 32), "f32")
    v = product(g, x, g.weight((32, 64), "f32", 0), [2], [0], (3, 1, 64), 32)
    g.keep(back(g, v))
    results = evaluated(module_of([g], 1), kind, True, True)
    assert difference({name: found[0][0] for name, found in results.items()}) == ""


def _whole(array: np.ndarray) -> bool:
    return bool(np.array_equal(array, np.rint(array)))


def test_a_wrong_bit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from suites.differential import judge as module
    from suites.outcome import WRONG

    def wrong(*args: Any) -> Any:
        (results,) = module_xla(*args)
        results[0] = np.where(np.arange(results[0].size).reshape(results[0].shape) == 0, 77, 0)
        return [results]

    module_xla = module.by_xla
    monkeypatch.setattr(module, "by_xla", wrong)
    (found,) = module.judge([cases(0)[0]])
    assert found.verdict == WRONG
    assert "XLA differs from the interpreter in result 0" in found.reason


def test_a_failure_shrinks_to_the_op_that_fails() -> None:
    """Any module with a transpose whose result is read by something else fails here."""
    from suites.differential.kinds import Kind
    from suites.differential.modules import drawn, module_of
    from suites.differential.shrink import shrunk

    def fails(module: Any) -> bool:
        return any(op.operation.name == "stablehlo.transpose" for op in module.program.walk())

    graphs = (drawn(seed, Kind("float")) for seed in range(100))
    graph = next(g for g in graphs if "transpose" in g.names and len(g.names) > 8)
    small = shrunk(module_of([graph]), fails)
    names = [op.operation.name for op in small.program.walk()]
    assert names == ["stablehlo.transpose", "func.return"]
    assert [len(arrays) for arrays in small.inputs] == [1, 1]
