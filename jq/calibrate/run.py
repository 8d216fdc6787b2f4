"""Calibration: an instrumented copy of the program measures its own activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from jq.backend.xla import XlaExecutable
from jq.calibrate.observer import Observer, get_observer
from jq.calibrate.ranges import Range, Ranges, site
from jq.errors import UserError
from jq.formats import NUMPY
from jq.ir import Program, at, func, ir
from jq.ir.arrays import StableHloOps
from jq.ir.build import NAME, string_attr
from jq.ir.lift import lift
from jq.ops.base import Contraction, rule_of

OPS = StableHloOps()


def instrument(program: Program, observer: Observer) -> tuple[Program, list[str]]:
    """A copy whose further results are the statistics of every activation, site after site."""
    copy = program.clone()
    sites: list[str] = []
    values: list[ir.Value] = []
    by_value: dict[ir.Value, list[ir.Value]] = {}
    for op in list(copy.walk()):
        rule = rule_of(op)
        name = string_attr(op, NAME)
        if not isinstance(rule, Contraction) or name is None:
            continue
        for role in rule.roles(op):
            x = op.operands[role.index]
            if copy.weight_name(x) is not None:
                continue
            if x not in by_value:
                by_value[x] = _measure(copy, op, x, observer)
            sites.append(site(name, role.index))
            values += by_value[x]
    _return_also(copy, values)
    return copy, sites


def _measure(program: Program, op: ir.OpView, x: ir.Value, observer: Observer) -> list[ir.Value]:
    with at(op):
        stats = observer.measure(OPS, x)
    lifted: list[ir.Value] = []
    for i, (value, neutral) in enumerate(zip(stats, observer.neutral(), strict=True)):

        def combine(a: ir.Value, b: ir.Value, i: int = i) -> ir.Value:
            return _component(observer, i, a, b)

        lifted.append(lift(value, program.body, neutral, combine))
    return lifted


def _component(observer: Observer, index: int, a: ir.Value, b: ir.Value) -> ir.Value:
    """Statistic number `index` of the combination; the others do not influence it."""
    count = len(observer.neutral())
    return observer.combine(OPS, (a,) * count, (b,) * count)[index]


def _return_also(program: Program, values: Sequence[ir.Value]) -> None:
    block = program.body
    old = block.operations[len(block.operations) - 1]
    with at(old):
        func.ReturnOp([*old.operands, *values])
    old.operation.erase()
    program.refresh()


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
