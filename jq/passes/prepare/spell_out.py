"""Spells out what has no form on codes in ops that have one, where few are enough.

    gather %x, i                  ->  slice %x           // one part, at a known place
    scatter (add) %x, i, %y       ->  add %x, (pad %y)   // the same
    reduce (multiply) %x          ->  products of two
    sort, or the values of top_k  ->  maxima and minima of two, by Batcher's odd-even merges
    select %c, NaN, %x            ->  %x

The last two are for devices without floats, since readers of exported files have no sort, and codes
stand for no NaN. What has more than 32 numbers along its axes stays."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jq.ir import NAME, OPS, Op, Program, at, ir, is_read, kind_of, maker, shape_of, stablehlo
from jq.ir.affine import constant_of
from jq.ir.build import copied, integers, replace
from jq.ir.ops.lookup import rule_of
from jq.ir.ops.rules.order import Sort
from jq.ir.ops.selection import SCATTER, combines, direction, splat_of
from jq.passes.base import Pass, PassContext
from jq.passes.integer._ops import is_float

MOST = 32  # numbers along an axis


class SpellOut(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in reversed(list(program.walk())):  # before it is erased, what is inside
            with at(op):
                values = _spelled(program, op, cx.target.device.integer_only)
            if values is not None:
                if (made := maker(values[0])) is not None and NAME in op.attributes:
                    made.attributes[NAME] = op.attributes[NAME]  # for messages
                replace(op, values)
                changed = True
        return program.tidied(changed)


def _spelled(program: Program, op: Op, codes: bool) -> Sequence[ir.Value] | None:
    """The values of an op's results; None where it stays."""
    kind, rule = kind_of(op), rule_of(op)
    if not op.results or not is_float(op.results[0]):
        return None
    if kind in PLACED:
        return PLACED[kind](program, op)
    if combines(op) == "multiply" and kind.endswith("reduce"):
        return _multiplied(program, op)
    if codes and kind == "stablehlo.select":
        arrays = {v: constant_of(program, v) for v in op.operands[1:]}
        kept = [v for v, array in arrays.items() if array is None or not np.isnan(array).all()]
        return kept if len(kept) == 1 else None
    return _in_order(op, rule) if codes and isinstance(rule, Sort) and rule.applies(op) else None


def _place(program: Program, index: ir.Value, axes: Sequence[int], rank: int) -> Any:
    """The place of the one part that an index leads to; None where it is not known, or of more."""
    known, low = constant_of(program, index), np.zeros(rank, int)
    if known is None or math.prod(shape_of(index)) != len(axes):
        return None
    low[list(axes)] = np.broadcast_to(known, shape_of(index)).reshape(-1)
    return low


def _taken(program: Program, op: Op) -> list[ir.Value] | None:
    (x, index), sizes = op.operands, np.array(integers(op, "slice_sizes"))
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    low = _place(program, index, numbers.start_index_map, len(sizes))
    if low is None:
        return None
    low = np.clip(low, 0, shape_of(x) - sizes)
    return [OPS.reshape(OPS.slice(x, low, low + sizes), shape_of(op.results[0]))]


def _added(program: Program, op: Op) -> list[ir.Value] | None:
    if len(op.operands) != 3 or kind_of(next(iter(op.regions[0].blocks[0]))) != "stablehlo.add":
        return None
    x, index, new = op.operands
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    low = _place(program, index, numbers.scattered_dims_to_operand_dims, len(shape_of(x)))
    sizes = [shape_of(new)[a] for a in numbers.update_window_dims]
    for axis in numbers.inserted_window_dims:
        sizes.insert(axis, 1)
    if low is None or (low < 0).any() or (high := shape_of(x) - low - sizes).min() < 0:
        return None
    return [OPS.add(x, OPS.pad(OPS.reshape(new, sizes), -0.0, low, high))]


def _multiplied(program: Program, op: Op) -> list[ir.Value] | None:
    x, start = op.operands
    axes, number = integers(op, "dimensions"), splat_of(program, start)
    if number is None or not 0 < math.prod(shape_of(x)[axis] for axis in axes) <= MOST:
        return None
    for axis in axes:
        parts = _parts(x, axis)
        while len(parts) > 1:
            parts = [*map(OPS.mul, parts[::2], parts[1::2]), *parts[len(parts) // 2 * 2 :]]
        x = parts[0]
    return [OPS.mul(OPS.reshape(x, shape_of(op.results[0])), number)]


def _in_order(op: Op, rule: Sort) -> list[ir.Value] | None:
    (x, *_), (values, *places), axis = op.operands, op.results, rule.axis(op)
    if shape_of(x)[axis] > MOST or not is_read(values):
        return None
    parts, rising = _parts(x, axis), not places and direction(op) == "LT"
    for i, j in exchanges(len(parts)):
        both = [of(parts[i], parts[j]) for of in (OPS.minimum, OPS.maximum)]
        parts[i], parts[j] = both if rising else both[::-1]
    kept = copied(op, [x]) if is_read(*places) else op
    return [OPS.concatenate(parts[: shape_of(values)[axis]], axis), *kept.results[1:]]


def exchanges(n: int) -> Iterator[tuple[int, int]]:
    """Pairs of n numbers that are brought in order, one after the other."""
    sizes = [1 << k for k in range((n - 1).bit_length())]
    for size, by in ((size, by) for size in sizes for by in sizes[::-1] if by <= size):
        for start in range(by % size, n - by, 2 * by):
            ends = range(start, min(start + by, n - by))
            yield from ((i, i + by) for i in ends if i // (2 * size) == (i + by) // (2 * size))


def _parts(x: ir.Value, axis: int) -> list[ir.Value]:
    """The elements along an axis, each a tensor."""
    low, high = np.zeros((2, n := shape_of(x)[axis], len(shape_of(x))), int)
    high[:] = shape_of(x)
    low[:, axis], high[:, axis] = range(n), range(1, n + 1)
    return list(map(OPS.slice, [x] * n, low.tolist(), high.tolist()))


PLACED = {SCATTER: _added, "stablehlo.gather": _taken}
