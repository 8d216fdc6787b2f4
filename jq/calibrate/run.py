"""Calibration: an instrumented copy of the program measures its own activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from jq.backend.xla import XlaExecutable
from jq.calibrate.observer import Observer, get_observer
from jq.calibrate.ranges import Range, Ranges, site
from jq.errors import UserError
from jq.formats import NUMPY
from jq.ir import Program, at, ir
from jq.ir.arrays import StableHloOps
from jq.ir.build import NAME, string_attr
from jq.ir.lift import lift
from jq.ops.base import Contraction, rule_of

OPS = StableHloOps()


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
                measured[x] = list(observer.measure(OPS, x))
        sites.append(site(string_attr(op, NAME) or "", index))
        order.append(measured[x])
    # Only now: lifting rebuilds loops, and values that were results of a loop change identity.
    lifted = {id(stats): _lift(copy, stats, observer) for stats in measured.values()}
    statistics = [value for stats in order for value in lifted[id(stats)]]
    copy.return_values([*copy.returned, *statistics])
    return copy, sites


def _activations(program: Program) -> Iterator[tuple[Any, int]]:
    """Every operand of a contraction that is not a weight itself."""
    for op in list(program.walk()):
        rule = rule_of(op)
        if isinstance(rule, Contraction) and string_attr(op, NAME) is not None:
            for role in rule.roles(op):
                if program.weight_name(op.operands[role.index]) is None:
                    yield op, role.index


def _lift(program: Program, stats: list[ir.Value], observer: Observer) -> list[ir.Value]:
    return [
        lift(value, program.body, neutral, partial(_component, observer, i))
        for i, (value, neutral) in enumerate(zip(stats, observer.neutral(), strict=True))
    ]


def _component(observer: Observer, index: int, a: ir.Value, b: ir.Value) -> ir.Value:
    """Statistic number `index` of the combination; the others do not influence it."""
    count = len(observer.neutral())
    return observer.combine(OPS, (a,) * count, (b,) * count)[index]


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
    total = [observer.neutral() for _ in sites]
    count = 0
    for inputs in batches:
        results = run(*inputs)[first:]
        for i, name in enumerate(sites):
            stats = tuple(results[i * width : (i + 1) * width])
            if not _finite(stats) and not _same(stats, observer.neutral()):
                raise UserError(
                    f"NaN or infinity in sample {count} of the calibration data", op=name
                )
            total[i] = tuple(np.asarray(v) for v in observer.combine(NUMPY, total[i], stats))
        count += 1
        if progress:
            progress(count)
    if not count:
        raise UserError("no calibration data", hint="give at least one batch of inputs")
    seen: dict[str, Range] = {
        name: observer.range_of(stats)
        for name, stats in zip(sites, total, strict=True)
        if not _same(stats, observer.neutral())  # else no sample reached it
    }
    return Ranges(seen, count, method)


def _finite(stats: Sequence[np.ndarray]) -> bool:
    return all(bool(np.isfinite(s).all()) for s in stats)


def _same(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
