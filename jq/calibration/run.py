"""Calibration: an instrumented copy of the program measures its own activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jq.calibration.observer import Observer, Stats, get_observer, not_finite
from jq.calibration.range import Range
from jq.calibration.ranges import Ranges, site
from jq.calibration.relevance import Relevance
from jq.calibration.stat_ops import NUMPY_STATS, PROGRAM_STATS
from jq.errors import UserError
from jq.ir import Op, Program, at, dtype_of, enclosing, ir, shape_of
from jq.ir.build import NAME, string_attr
from jq.ir.hoist import hoist
from jq.ir.markers import EDGE, edge_name, marker_kind
from jq.ops.base import Contraction, rule_of
from jq.oracle.xla import XlaExecutable


def instrument(
    program: Program, observer: Observer, masks: Mapping[str, Sequence[int]] | None = None
) -> tuple[Program, list[str]]:
    """A copy whose further results are the statistics of every activation, site after site.

    Args:
        masks: shape of the rows of some sites; the copy has a weight `<site>:rows` of that shape,
            and a row for which it is 0 counts as zeros.
    """
    copy, masks = program.clone(), masks or {}
    sites: list[str] = []
    measured: dict[tuple[ir.Block, ir.Value], list[ir.Value]] = {}
    order: list[list[ir.Value]] = []
    for op, index in _activations(copy):
        x = op.operands[index]
        name = site(edge_name(op) or string_attr(op, NAME) or "", index)
        # Not shared across the branches of a conditional: only one of them runs.
        stats = next((m for b in enclosing(op) if (m := measured.get((b, x)))), None)
        if stats is None:
            with at(op):
                kept = _masked(copy, op, index, name, masks[name]) if name in masks else x
                stats = list(observer.measure(PROGRAM_STATS, kept))
            measured[op.operation.block, x] = stats
        sites.append(name)
        order.append(stats)
    # Only now: lifting rebuilds loops, and values that were results of a loop change identity.
    hoisted = {id(stats): _hoist(copy, stats, observer) for stats in measured.values()}
    statistics = [value for stats in order for value in hoisted[id(stats)]]
    copy.return_values([*copy.returned, *statistics])
    return copy, sites


def _masked(program: Program, op: Op, index: int, name: str, rows: Sequence[int]) -> ir.Value:
    """The operand with zeros in the rows that do not count."""
    x, ops = op.operands[index], PROGRAM_STATS
    shape, axes = shape_of(x), row_axes(op, index)
    mask = ops.broadcast(
        program.add_weight(f"{name}:rows", np.ones(rows, np.float32)),
        shape,
        [a for a in range(len(shape)) if a not in axes],
    )
    zero = ops.broadcast(ops.constant(np.zeros((), np.float32)), shape, [])
    blank = ops.broadcast(ops.constant(np.zeros((), dtype_of(x))), shape, [])
    return ops.select(ops.equal(mask, zero), blank, x)


def row_axes(op: Op, index: int) -> frozenset[int]:
    """The axes of an operand that one row of it has: those that are summed over."""
    rule = rule_of(op)
    if not isinstance(rule, Contraction):
        return frozenset()
    return next(r.contracted for r in rule.roles(op) if r.index == index)


def _activations(program: Program) -> Iterator[tuple[Any, int]]:
    """Every operand of a contraction that is not a weight itself, and every edge."""
    for op in list(program.walk()):
        rule = rule_of(op)
        if isinstance(rule, Contraction) and string_attr(op, NAME) is not None:
            for role in rule.roles(op):
                if program.weight_name(op.operands[role.index]) is None:
                    yield op, role.index
        elif marker_kind(op) == EDGE:
            yield op, 0


def _rows(program: Program) -> dict[str, tuple[ir.Value, Sequence[int]]]:
    """Every value that is observed, under the name of its first site."""
    found: dict[ir.Value, str] = {}
    rows: dict[str, tuple[ir.Value, Sequence[int]]] = {}
    for op, index in _activations(program):
        x, axes = op.operands[index], row_axes(op, index)
        if x not in found and axes and dtype_of(x).kind == "f":
            found[x] = site(string_attr(op, NAME) or "", index)
            rows[found[x]] = x, sorted(axes)
    return rows


def _hoist(program: Program, stats: list[ir.Value], observer: Observer) -> list[ir.Value]:
    return [
        hoist(value, program.body, neutral, partial(_component, observer, i))
        for i, (value, neutral) in enumerate(zip(stats, observer.neutral(), strict=True))
    ]


def _component(observer: Observer, index: int, a: ir.Value, b: ir.Value) -> ir.Value:
    """Statistic number `index` of the combination; the others do not influence it."""
    count = len(observer.neutral())
    return observer.combine(PROGRAM_STATS, (a,) * count, (b,) * count)[index]


def calibrate(
    program: Program,
    batches: Iterable[Sequence[np.ndarray]],
    method: str = "minmax",
    progress: Callable[[int], None] | None = None,
    *,
    relevant: bool = False,
) -> Ranges:
    """Runs `batches` (flat lists of inputs) through the program and gives every range seen.

    Args:
        relevant: leave out rows that never reach the output (see `jq.calibration.relevance`).

    Raises:
        UserError: there is no batch, or an activation is NaN or infinite; it is named.
    """
    observer = get_observer(method)
    rows = Relevance(program, _rows(program)) if relevant else None
    instrumented, sites = instrument(program, observer, rows.shapes if rows else {})
    run, first = XlaExecutable(instrumented), len(program.outputs)
    width = len(observer.neutral())
    total = [_wide(observer.neutral()) for _ in sites]
    count = 0
    for inputs in batches:
        if rows:
            run.bind({f"{name}:rows": kept for name, kept in rows(inputs, count).items()})
        results = run(*inputs)[first:]
        for i, name in enumerate(sites):
            stats = tuple(results[i * width : (i + 1) * width])
            if not np.isfinite(observer.extremes(stats)).all() and not _empty(observer, stats):
                raise not_finite(count, name)
            total[i] = observer.combine(NUMPY_STATS, total[i], _wide(stats))
        count += 1
        if progress:
            progress(count)
    if not count:
        raise UserError("no calibration data", hint="give at least one batch of inputs")
    reached = {
        name: stats
        for name, stats in zip(sites, total, strict=True)
        if not _empty(observer, stats)  # else no sample got there
    }
    extremes = {name: Range(*observer.extremes(stats)) for name, stats in reached.items()}
    return Ranges(extremes, count, method, {} if method == "minmax" else reached)


def _wide(stats: Stats) -> Stats:
    """Counts in 64 bits and sums in double, for any number of samples."""
    wide = {"i": np.int64, "f": np.float64}
    return tuple(np.asarray(s).astype(wide[s.dtype.kind]) for s in stats)


def _empty(observer: Observer, stats: Stats) -> bool:
    """Whether these are the statistics of no data."""
    return all(np.array_equal(x, y) for x, y in zip(stats, observer.neutral(), strict=True))
