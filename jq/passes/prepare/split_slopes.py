"""A choice by sign between two multiples of a value becomes a sum, where a device cannot choose.

    select (compare GT, %x, 0), %x, (multiply %a, %x)
    ->
    add (maximum %x, 0), (multiply %a, (minimum %x, 0))

This is how PReLU is written, and any `where(x > 0, a * x, b * x)`. Not for a device that compares
quantized values and selects among them, and not where one table computes it: both slopes are single
numbers. Either factor may be a weight."""

import numpy as np

from jq.ir import OPS, Op, Program, direction_of, dtype_of, ir, kind_of, maker, shape_of
from jq.ir.affine import compact, step
from jq.ir.ops.selection import splat_of
from jq.passes.base import PassContext
from jq.passes.rewrite import Rewrite

POSITIVE, NEGATIVE = ("GT", "GE"), ("LT", "LE")
NEEDED = {"add", "maximum", "minimum", "multiply"}


class SplitSlopes(Rewrite):
    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        device, ops = cx.target.device, cx.target.device.ops
        chooses = "compare" in device.functions and (ops is None or "select" in ops)
        if kind_of(op) != "stablehlo.select" or chooses or not (ops is None or {*ops} >= NEEDED):
            return None
        if (found := _slopes(program, op)) is None:
            return None
        x, *slopes = found
        table = "table" in device.functions and all(s.size == 1 for s in slopes)
        parts = zip((OPS.maximum, OPS.minimum), slopes, strict=True)
        return None if table else [OPS.add(*(_scaled(of(x, 0), c) for of, c in parts))]


def _slopes(program: Program, op: Op) -> tuple[ir.Value, np.ndarray, np.ndarray] | None:
    """The value that is multiplied, and its factors where it is positive and negative; both have
    size 1 along the axes on which they do not depend."""
    condition, yes, no = op.operands
    compare = maker(condition, "stablehlo.compare")
    if compare is None or dtype_of(yes) != np.float32 or shape_of(condition) != shape_of(yes):
        return None
    x, bound = compare.operands
    direction = direction_of(compare)
    if splat_of(program, x) == 0:
        x, yes, no = bound, no, yes
    elif splat_of(program, bound) != 0:
        return None
    if direction in NEGATIVE:
        yes, no = no, yes
    elif direction not in POSITIVE:
        return None
    slopes = _factor(program, yes, x), _factor(program, no, x)
    return None if slopes[0] is None or slopes[1] is None else (x, slopes[0], slopes[1])


def _factor(program: Program, value: ir.Value, x: ir.Value) -> np.ndarray | None:
    """`c` where the value is `c * x`."""
    c = np.ones(())
    while value != x:
        op = maker(value)
        found = ((v, step(program, op, v)) for v in op.operands) if op else ()
        value, by = next(((v, by) for v, by in found if by is not None), (x, None))
        if by is None or by[1].any():
            return None
        c = c * by[0]
    return compact(np.asarray(c))


def _scaled(x: ir.Value, c: np.ndarray) -> ir.Value:
    return x if (c == 1).all() else OPS.mul(x, OPS.spread(c.astype(np.float32), shape_of(x)))
