"""Conversions that IREE rounds, or saturates, in another way."""

from functools import partial

import ml_dtypes
import numpy as np

from jq.ir import OPS, Op, Program, at, constant_of, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.constants import dense_array
from jq.ir.types import number_kind
from jq.ir.values import maker
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend

# Integers become bfloat16 by way of float32, as on XLA, and are rounded in integers.
#
#     convert %x : i32 -> bf16
#     ->
#     %u = bitcast (convert %x : f32) : i32
#     bitcast (convert ((%u + 0x7fff + (%u >> 16 & 1)) >> 16) : i16) : bf16
#
# IREE fails likewise where the two conversions are written one after the other.
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class RoundToBfloat16(Mend):
    """Conversions of integers to bfloat16 on a processor without AVX512-BF16 call a function of the
    system's library, which a module has not.
    Trap: traps/test_refused.py::test_integers_to_bfloat16
    """

    def finds(self, op: Op) -> bool:
        name = op.operation.name
        if name != "stablehlo.convert" or dtype_of(op.results[0]) != BFLOAT16:
            return False
        return dtype_of(op.operands[0]).kind in "iub"

    def rewritten(self, op: Op) -> list[ir.Value]:
        known = _constant(op)
        wide = OPS.convert(op.operands[0], np.float32)
        return [_to_bfloat16(wide) if known is None else constant_of(known)]


def _constant(op: Op) -> np.ndarray | None:
    """The result for a constant: IREE fails on what would compute it before padding (`jnp.pad`)."""
    operand = op.operands[0]
    value = dense_array(operand) if maker(operand, "stablehlo.constant") else None
    return None if value is None else value.astype(np.float32).astype(BFLOAT16)


def _to_bfloat16(x: ir.Value) -> ir.Value:
    """The bfloat16 nearest to a finite float32, ties to even."""
    bits = OPS.bitcast(x, np.int32)
    full = partial(OPS.full, bits)
    odd = OPS.bit_and(OPS.shift_right(bits, full(16)), full(1))
    up = OPS.add(OPS.add(bits, full(0x7FFF)), odd)
    return OPS.bitcast(OPS.convert(OPS.shift_right(up, full(16)), np.int16), BFLOAT16)


# Floats and exponents of 8 bits (`f8E8M0FNU`) become each other by way of the bits of float32.
#
# convert %x : f32 -> f8E8M0FNU
# ->
# %code = (bits(%x) + 0x400000) >> 23             half a step up; infinity has the code of NaN
# bitcast (select (%x is a normal number) %code, ...) : f8E8M0FNU
EXPONENTS = np.dtype(ml_dtypes.float8_e8m0fnu)
NAN = 0xFF


class RoundToExponents(Mend):
    """Conversions to `float8_e8m0fnu` (scales of blocks, computed at run time) are rounded down
    instead of to the nearest power of two, zero and negative numbers become numbers, and the
    smallest exponent is read as 0.
    Trap: traps/test_exponents.py::test_floats_to_exponents_without_the_pass
    Trap: traps/test_exponents.py::test_the_smallest_exponent_without_the_pass
    """

    def finds(self, op: Op) -> bool:
        if op.operation.name != "stablehlo.convert":
            return False
        (operand,), (result,) = op.operands, op.results
        return (dtype_of(operand) == EXPONENTS) != (dtype_of(result) == EXPONENTS)

    def rewritten(self, op: Op) -> list[ir.Value]:
        (x,), kind = op.operands, dtype_of(op.results[0])
        if kind == EXPONENTS:
            return [_to_exponents(OPS.convert(x, np.float32))]
        return [OPS.convert(_read(x), kind)]


def _to_exponents(x: ir.Value) -> ir.Value:
    """The power of two nearest to a float32, the larger one of two; NaN for what has none."""
    bits = OPS.bitcast(x, np.int32)
    full = partial(OPS.full, bits)

    def choose(bound: int, direction: str, then: ir.Value, other: ir.Value) -> ir.Value:
        return OPS.select(OPS.compare(bits, full(bound), direction), then, other)

    code = OPS.shift_right(OPS.add(bits, full(0x400000)), full(23))
    # What is not normal becomes 2**-126 (code 1) if it is larger than 2**-127 (code 0), as on XLA.
    code = choose(0x800000, "LT", full(1), code)
    code = choose(0x400000, "LE", full(0), code)
    code = choose(0x7F400000, "GE", full(NAN), code)
    code = choose(0, "LE", full(NAN), code)
    return stablehlo.bitcast_convert(
        tensor_type(shape_of(x), EXPONENTS), OPS.convert(code, np.int8)
    )


def _read(x: ir.Value) -> ir.Value:
    """The float32 that an exponent stands for."""
    signed = stablehlo.bitcast_convert(tensor_type(shape_of(x), np.dtype(np.int8)), x)
    wide = OPS.convert(signed, np.int32)
    full = partial(OPS.full, wide)
    code = OPS.bit_and(wide, full(0xFF))
    bits = OPS.shift_left(code, full(23))
    bits = OPS.select(OPS.equal(code, full(0)), full(0x400000), bits)
    bits = OPS.select(OPS.equal(code, full(NAN)), full(0x7FC00000), bits)
    return OPS.bitcast(bits, np.float32)


# Conversions from float to integer saturate, and NaN becomes 0, as on XLA.
#
#     convert %x : f32 -> i8   ->  convert (select (x == x) clamp(-128, x, 127), 0)
#     convert %x : f32 -> i32  ->  select (x >= 2^31) 2^31 - 1, convert clamp(-2^31, x, 2^31 - 128)
#
# The largest integer of 32 bits is no float32: what is beyond the largest float below it gets it by
# a select. Fires on the model's own conversions; those of our formats are clamped where they are
# built.
class SaturateConverts(Mend):
    """Conversions from float to integer out of range wrap around or saturate as the processor does
    it, and 1e10 is not the largest integer (StableHLO leaves the result open; XLA saturates).
    Trap: traps/test_values.py::test_conversions_out_of_range
    """

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
        full = partial(OPS.full, wide)
        number = OPS.select(OPS.equal(wide, wide), wide, full(0))
        op.operands[0] = OPS.minimum(OPS.maximum(number, full(low)), full(inside))
    if inside == high:
        return
    with at(op, after=True):
        most = OPS.broadcast(constant_of(np.asarray(info.max, target)), shape, [])
        result = op.results[0]
        chosen = OPS.select(OPS.compare(wide, full(high), "GE"), most, result)
    result.replace_all_uses_except(chosen, chosen.owner.operation)
