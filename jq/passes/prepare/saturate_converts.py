"""Conversions from float to integer saturate, and NaN becomes 0, as on XLA; IREE 3.13 wraps.

    convert %x : f32 -> i8  ->  convert (select (x == x) clamp(-128, x, 127), 0)

Fires on the model's own conversions; those of our formats are clamped where they are built.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.passes.base import Pass, PassContext

OPS = StableHloOps()


@dataclass(frozen=True)
class SaturateConverts(Pass):
    name = "saturate-converts"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            if op.operation.name != "stablehlo.convert":
                continue
            source, target = dtype_of(op.operands[0]), dtype_of(op.results[0])
            if source.kind not in "fV" or target.kind not in "iu":
                continue
            with at(op):
                op.operation.operands[0] = _saturated(op.operands[0], target)
            changed = True
        return changed


def _saturated(x: ir.Value, target: np.dtype) -> ir.Value:
    """`x` within the integers of `target` that its float type can hold."""
    wide = x if dtype_of(x).itemsize >= 4 else OPS.convert(x, np.float32)
    dtype, shape = dtype_of(wide), shape_of(x)
    info = np.iinfo(target)
    low, high = dtype.type(info.min), dtype.type(info.max)
    if int(high) > info.max:  # rounded up: the next float below is the largest that fits
        high = np.nextafter(high, dtype.type(0))

    def full(value: float) -> ir.Value:
        return OPS.broadcast(OPS.constant(np.asarray(value, dtype)), shape, [])

    number = OPS.select(OPS.equal(wide, wide), wide, full(0))
    return OPS.minimum(OPS.maximum(number, full(low)), full(high))
