"""Conversions from float to integer saturate, and NaN becomes 0, as on XLA.

    convert %x : f32 -> i8   ->  convert (select (x == x) clamp(-128, x, 127), 0)
    convert %x : f32 -> i32  ->  select (x >= 2^31) 2^31 - 1, convert clamp(-2^31, x, 2^31 - 128)

The largest integer of 32 bits is no float32: what is beyond the largest float below it gets it by
a select. Fires on the model's own conversions; those of our formats are clamped where they are
built.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from jq.ir import Op, Program, at, constant_of, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.types import number_kind
from jq.ir.values import maker
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()


@dataclass(frozen=True)
class SaturateConverts(Mend):
    """Conversions from float to integer out of range wrap around or saturate as the processor does
    it, and 1e10 is not the largest integer (StableHLO leaves the result open; XLA saturates).
    Trap: traps/test_values.py::test_conversions_out_of_range
    """

    name = "saturate-converts"

    def left(self, program: Program) -> list[Op]:
        ops = [op for op in program.walk() if _is_float_to_integer(op)]
        return [op for op in ops if maker(op.operands[0], "stablehlo.minimum") is None]

    def run(self, program: Program, cx: PassContext) -> bool:
        found = [op for op in program.walk() if _is_float_to_integer(op)]
        for op in found:
            _saturate(op)
        return bool(found)


def _is_float_to_integer(op: Op) -> bool:
    if op.operation.name != "stablehlo.convert":
        return False
    source, target = dtype_of(op.operands[0]), dtype_of(op.results[0])
    return number_kind(source) == "f" and number_kind(target) == "i"


def _saturate(op: Op) -> None:
    """Clamps what the op converts, and chooses the largest integer where no float is it."""
    x, target = op.operands[0], dtype_of(op.results[0])
    with at(op):
        wide = x if dtype_of(x).itemsize >= 4 else OPS.convert(x, np.float32)
        dtype, shape = dtype_of(wide), shape_of(x)
        info = ml_dtypes.iinfo(target)
        low, high = dtype.type(info.min), dtype.type(info.max)
        inside = high if int(high) == info.max else np.nextafter(high, dtype.type(0))

        def full(value: Any) -> ir.Value:
            return OPS.broadcast(OPS.constant(np.asarray(value, dtype)), shape, [])

        number = OPS.select(OPS.equal(wide, wide), wide, full(0))
        op.operation.operands[0] = OPS.minimum(OPS.maximum(number, full(low)), full(inside))
    if inside == high:
        return
    with at(op, after=True):
        most = OPS.broadcast(constant_of(np.asarray(info.max, target)), shape, [])
        result = op.results[0]
        chosen = OPS.select(OPS.compare(wide, full(high), "GE"), most, result)
    result.replace_all_uses_except(chosen, chosen.owner.operation)
