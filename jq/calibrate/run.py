"""Calibration: an instrumented copy of the program measures its own activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from jq.backend.xla import XlaExecutable
from jq.calibrate.observer import Observer, Stats, get_observer
from jq.calibrate.ranges import Range, Ranges, site
from jq.calibrate.stat_ops import NUMPY_STATS, PROGRAM_STATS
from jq.errors import UserError
from jq.ir import Program, at, ir
from jq.ir.build import NAME, string_attr
from jq.ir.lift import lift
from jq.ir.markers import EDGE, edge_name, marker_kind
from jq.ops.base import Contraction, rule_of


def instrument(program: Program, observer: Observer) -> tuple[Program, list[str]]:
    """A copy whose further results are the statistics of every activation, site after site."""
    copy = program.clone()
    sites: list[str] = []
    measured: dict[ir.Value, list[ir.Value]] = {}
    order: list[list[ir.Value]] = []
    for op, index in _activations(copy):
        x = op.operands[index]
        if x not in measured:
            with at(op):
                measured[x] = list(observer.measure(PROGRAM_STATS, x))
        sites.append(site(edge_name(op) or string_attr(op, NAME) or "", index))
        order.append(measured[x])
    # Only now: lifting rebuilds loops, and values that were results of a loop change identity.
    lifted = {id(stats): _lift(copy, stats, observer) for stats in measured.values()}
    statistics = [value for stats in order for value in lifted[id(stats)]]
    copy.return_values([*copy.returned, *statistics])
    return copy, sites


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


def _lift(program: Program, stats: list[ir.Value], observer: Observer) -> list[ir.Value]:
    return [
        lift(value, program.body, neutral, partial(_component, observer, i))
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
) -> Ranges:
    """Runs `batches` (flat lists of inputs) through the program and gives every range seen.

    Raises:
        UserError: there is no batch, or an activation is NaN or infinite; it is named.
    """
    observer = get_observer(method)
    instrumented, sites = instrument(program, observer)
    run, first = XlaExecutable(instrumented), len(program.outputs)
    width = len(observer.neutral())
    total = [_wide(observer.neutral()) for _ in sites]
    count = 0
    for inputs in batches:
        results = run(*inputs)[first:]
        for i, name in enumerate(sites):
            stats = tuple(results[i * width : (i + 1) * width])
            if not np.isfinite(observer.extremes(stats)).all() and not _empty(observer, stats):
                raise UserError(
                    f"NaN or infinity in sample {count} of the calibration data", op=name
                )
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
