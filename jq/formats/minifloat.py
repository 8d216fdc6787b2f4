"""Small floats: codes of sign, exponent and mantissa bits, held in int8.

Read and written with integer arithmetic, for compilers' own 8-bit float types are wrong at
NaN and overflow, and below 8 bits there are none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.blocks import full

F32, I32 = np.float32, np.int32
EXPONENT = I32(0x7F800000)  # field of a float32
MAGNITUDE = I32(0x7FFFFFFF)
QUIET_NAN = 0x7FC00000


@dataclass(frozen=True)
class Minifloat:
    """A float of `1 + exponent + mantissa` bits that saturates.

    Attributes:
        exponent, mantissa: bits of the two fields.
        largest_code: code of the largest finite number, without the sign.
        infinity: code of infinity, without the sign, if there is one; above it, or above
            `largest_code` where there is none, codes are NaN.
    """

    exponent: int
    mantissa: int
    largest_code: int
    infinity: int | None = None

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def largest(self) -> float:
        field, fraction = divmod(self.largest_code, 1 << self.mantissa)
        return float((1 + fraction / (1 << self.mantissa)) * 2.0 ** (field - self.bias))

    def encode(self, x: np.ndarray, rounding: str = "even") -> np.ndarray:
        """Codes in int8 of finite float32 values, saturated at the largest number.

        With e the exponent of x, no smaller than that of the smallest normal number, x is
        k * 2^(e - mantissa), k rounded to an integer. The code is k plus 2^mantissa for each
        step of e: consecutive numbers have consecutive codes, subnormal ones included.

        Args:
            rounding: `even` (ties to the even code) or `nearest` (ties away from zero).
        """
        m = self.mantissa
        bits = x.view(I32)
        e = np.bitwise_and(bits, EXPONENT)
        np.maximum(e, I32((128 - self.bias) << 23), out=e)
        magnitude = np.bitwise_and(bits, MAGNITUDE).view(F32)
        if rounding == "even":
            e += I32((23 - m) << 23)  # 2^(e - m) is the unit of the last place of this number,
            magnitude += e.view(F32)  # so the addition rounds, and leaves k in its low bits
            code = magnitude.view(I32)
            code -= e
            e -= I32((23 - m) << 23)
        else:
            k = magnitude / (e - I32(m << 23)).view(F32)
            down = np.floor(k)
            code = (down + (k - down >= 0.5)).astype(I32)
        e >>= I32(23 - m)
        code += e
        code -= I32((128 - self.bias) << m)
        np.minimum(code, I32(self.largest_code), out=code)
        sign = np.right_shift(bits, 31 - (self.bits - 1), out=e)
        sign &= I32(1 << (self.bits - 1))
        code |= sign
        return code.astype(np.int8)

    def nearest(self, ops: ArrayOps, x: Array) -> Array:
        """The number of this type nearest to each f32, as f32: `decode(encode(x, "even"))`."""
        shape = ops.shape(x)
        e = ops.bit_and(ops.bitcast(x, I32), full(ops, int(EXPONENT), shape, I32))
        e = ops.maximum(e, full(ops, (128 - self.bias) << 23, shape, I32))
        unit = ops.bitcast(ops.sub(e, full(ops, self.mantissa << 23, shape, I32)), F32)
        y = ops.mul(ops.round_even(ops.div(x, unit)), unit)
        most = full(ops, self.largest, shape, F32)
        return ops.maximum(ops.minimum(y, most), full(ops, -self.largest, shape, F32))

    def decode(self, ops: ArrayOps, codes: Array) -> Array:
        """Float32 values of int8 codes; every code is decoded, NaN and infinities included."""
        m, shape = self.mantissa, ops.shape(codes)

        def const(value: int) -> Array:
            return full(ops, value, shape, I32)

        wide = ops.convert(codes, I32)
        code = ops.bit_and(wide, const((1 << (self.bits - 1)) - 1))
        sign = ops.bit_and(wide, const(1 << (self.bits - 1)))
        normal = ops.shift_left(code, const(23 - m))
        normal = ops.add(normal, const((127 - self.bias) << 23))
        unit = full(ops, 2.0 ** (1 - self.bias - m), shape, F32)
        subnormal = ops.bitcast(ops.mul(ops.convert(code, F32), unit), I32)
        is_subnormal = ops.equal(ops.shift_right(code, const(m)), const(0))
        value = ops.select(is_subnormal, subnormal, normal)
        last = (1 << (self.bits - 1)) - 1
        if self.largest_code < last:
            first_nan = self.largest_code + (1 if self.infinity is None else 2)
            is_nan = ops.equal(ops.maximum(code, const(first_nan)), code)
            value = ops.select(is_nan, const(QUIET_NAN), value)
        if self.infinity is not None:
            is_inf = ops.equal(code, const(self.infinity))
            value = ops.select(is_inf, const(int(EXPONENT)), value)
        sign = ops.shift_left(sign, const(32 - self.bits))
        return ops.bitcast(ops.bit_or(value, sign), F32)


E4M3FN = Minifloat(4, 3, largest_code=0x7E)
E5M2 = Minifloat(5, 2, largest_code=0x7B, infinity=0x7C)
E3M2 = Minifloat(3, 2, largest_code=0x1F)
E2M3 = Minifloat(2, 3, largest_code=0x1F)
E2M1 = Minifloat(2, 1, largest_code=0x07)
