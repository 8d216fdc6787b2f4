"""Conversions that IREE rounds, or saturates, in another way."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from jq.ir import OPS, Op, Program, at, constant_of, dense_array, dtype_of, ir, shape_of
from jq.ir.build import barrier, like, recast
from jq.ir.numbers import Number, where
from jq.ir.types import number_kind
from jq.ir.values import maker, reached
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend


def _kinds(op: Op) -> list[np.dtype[Any]]:
    """The types from which and to which an op converts; none of another op."""
    converts = op.operation.name == "stablehlo.convert"
    return [dtype_of(v) for v in (*op.operands, *op.results)] if converts else []


# Integers become bfloat16 by way of float32, as on XLA, and are rounded in integers.
#
#     convert %x : i32 -> bf16
#     ->
#     %u = bitcast (convert %x : f32) : i32
#     bitcast (convert ((%u + 0x7fff + (%u >> 16 & 1)) >> 16) : i16) : bf16
#
# IREE fails likewise where what lies between the two conversions moves numbers or changes none.
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
MOVES = [f"stablehlo.{k}" for k in ("convert", "reshape", "transpose", "broadcast_in_dim", "slice")]
NEUTRAL = {"stablehlo.multiply": 1, "stablehlo.divide": 1, "stablehlo.subtract": 0}


class RoundToBfloat16(Mend):
    """Conversions of integers to bfloat16 on a processor without AVX512-BF16 call a function of the
    system's library, which a module has not.
    Trap: traps/test_refused.py::test_integers_to_bfloat16"""

    def finds(self, op: Op) -> bool:
        kinds = _kinds(op)
        rounds = kinds[1:] == [BFLOAT16] and kinds[0] != np.float64
        return rounds and any(dtype_of(v).kind in "iub" for v in reached(op.operands, _unchanged))

    def rewritten(self, op: Op) -> list[ir.Value]:
        x = op.operands[0]
        known = dense_array(x) if maker(x, "stablehlo.constant") else None
        if known is not None:  # IREE fails on what would compute it before padding (`jnp.pad`)
            return [constant_of(known.astype(np.float32).astype(BFLOAT16))]
        bits = Number(OPS.convert(x, np.float32)).bits(np.int32)
        up = bits + 0x7FFF + ((bits >> 16) & 1)  # the nearest, ties to even
        return [(up >> 16).as_type(np.int16).bits(BFLOAT16).value]


def _unchanged(value: ir.Value) -> Sequence[ir.Value]:
    """The operand of what moves a value, or does nothing to it with the number on its right."""
    if (op := maker(value, *MOVES, *NEUTRAL)) is None:
        return []
    x, *numbers = op.operands
    return [x] if all(_is_all(NEUTRAL[op.operation.name], v) for v in numbers) else []


def _is_all(number: int, value: ir.Value) -> bool:
    while broadcast := maker(value, "stablehlo.broadcast_in_dim"):
        value = broadcast.operands[0]
    known = dense_array(value) if maker(value, "stablehlo.constant") else None
    return known is not None and bool((known == number).all())


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
    Trap: traps/test_exponents.py::test_the_smallest_exponent_without_the_pass"""

    def finds(self, op: Op) -> bool:
        return _kinds(op).count(EXPONENTS) == 1

    def rewritten(self, op: Op) -> list[ir.Value]:
        (x,), kind = op.operands, dtype_of(op.results[0])
        if kind == EXPONENTS:
            code = _to_exponents(Number(OPS.convert(x, np.float32)))
            return [recast(code.as_type(np.int8).value, EXPONENTS)]
        code = Number(recast(x, np.int8)).as_type(np.int32) & 0xFF
        bits = where(code.equals(0), 0x400000, code << 23)
        return [where(code.equals(NAN), 0x7FC00000, bits).bits(np.float32).as_type(kind).value]


def _to_exponents(x: Number) -> Number:
    """The code of the power of two nearest to a float32, the larger of two; NaN where is none."""
    bits = x.bits(np.int32)
    code = (bits + 0x400000) >> 23
    # What is not normal becomes 2**-126 (code 1) if it is larger than 2**-127 (code 0), as on XLA.
    code = where(bits < 0x800000, 1, code)
    code = where(bits <= 0x400000, 0, code)
    return where((bits >= 0x7F400000) | (bits <= 0), NAN, code)


class ConvertByFloat32(Mend):
    """Conversions between float16 and floats of 8 bits are refused.
    Trap: traps/test_exponents.py::test_float16_and_floats_of_8_bits_without_the_pass"""

    def finds(self, op: Op) -> bool:
        kinds = _kinds(op)
        return np.float16 in kinds and any(k.itemsize == 1 and number_kind(k) == "f" for k in kinds)

    def rewritten(self, op: Op) -> list[ir.Value]:
        wide = barrier(OPS.convert(op.operands[0], np.float32))  # exact; else the two become one
        return [like(op, [wide], shape_of(wide), dtype_of(op.results[0]))]


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
    Trap: traps/test_values.py::test_conversions_out_of_range"""

    def left(self, program: Program) -> list[Op]:
        ops = [op for op in program.walk() if _is_float_to_integer(op)]
        return [op for op in ops if maker(op.operands[0], "stablehlo.minimum") is None]

    def run(self, program: Program, cx: PassContext) -> bool:
        found = [op for op in program.walk() if _is_float_to_integer(op)]
        for op in found:
            _saturate(op)
        return bool(found)


def _is_float_to_integer(op: Op) -> bool:
    return [number_kind(kind) for kind in _kinds(op)] == ["f", "i"]


def _saturate(op: Op) -> None:
    """Clamps what the op converts, and chooses the largest integer where no float is it."""
    x, result = op.operands[0], op.results[0]
    with at(op):
        wide = Number(x if dtype_of(x).itemsize >= 4 else OPS.convert(x, np.float32))
        real, info = dtype_of(wide.value).type, ml_dtypes.iinfo(dtype_of(result))
        low, high = real(info.min), real(info.max)
        inside = high if int(high) == info.max else np.nextafter(high, real(0))
        number = where(wide.equals(wide), wide, 0)
        op.operands[0] = number.maximum(low).minimum(inside).value
    if inside == high:
        return
    with at(op, after=True):
        most = constant_of(np.asarray(info.max, dtype_of(result)))
        most = OPS.broadcast(most, shape_of(x), [])
        chosen = OPS.select((wide >= high).value, most, result)
    result.replace_all_uses_except(chosen, chosen.owner.operation)
