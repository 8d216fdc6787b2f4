"""Small floats: codes of sign, exponent and mantissa bits, held in int8.

Read and written with integer arithmetic, for compilers' own 8-bit float types are wrong at NaN and
overflow, and below 8 bits there are none."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from jq.formats.arrays import NUMPY, Array, ArrayOps

F32, I8, I16, I32 = np.float32, np.int8, np.int16, np.int32
EXPONENT = I32(0x7F800000)  # field of a float32
MAGNITUDE = I32(0x7FFFFFFF)
QUIET_NAN = 0x7FC00000


@dataclass(frozen=True)
class Minifloat:
    """A float of `1 + exponent + mantissa` bits that saturates.

    Attributes:
        exponent, mantissa: bits of the two fields.
        largest_code: code of the largest finite number, without the sign. Above it are infinity
            and NaN as in IEEE's formats where the exponent has 5 bits, else NaN alone."""

    exponent: int
    mantissa: int
    largest_code: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def element_type(self) -> np.dtype[Any] | None:
        """None for 6 bits, which compilers have no such types for."""
        return _TYPES.get((self.exponent, self.mantissa))

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def largest(self) -> float:
        field, fraction = divmod(self.largest_code, 1 << self.mantissa)
        return float((1 + fraction / (1 << self.mantissa)) * 2.0 ** (field - self.bias))

    def encode(self, x: np.ndarray, rounding: str = "even") -> np.ndarray:
        """Codes in int8 of float32 values, saturated at the largest number (as NaN is).

        With e the exponent of x, no smaller than that of the smallest normal number, x is
        k * 2^(e - mantissa), k rounded to an integer. The code is k plus 2^mantissa for each
        step of e: consecutive numbers have consecutive codes, subnormal ones included.

        Args:
            rounding: `even` (ties to the even code) or `nearest` (ties away from zero)."""
        m = self.mantissa
        bits = x.view(I32)
        magnitude = np.bitwise_and(bits, MAGNITUDE)
        # Beyond twice the largest number all saturate: the units added below stay in range.
        np.minimum(magnitude, F32(2 * self.largest).view(I32), out=magnitude)
        e = np.bitwise_and(magnitude, EXPONENT)
        np.maximum(e, I32((128 - self.bias) << 23), out=e)
        magnitude = magnitude.view(F32)
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

    @property
    def unit(self) -> float:
        return float(2.0 ** (1 - self.bias - self.mantissa))

    def nearest(self, ops: ArrayOps, x: Array) -> Array:
        """An addition rounds, as in `encode`: of a number as large as 2^23 units of the last place.
        The sign is put back last, so that zero keeps it."""
        bits = ops.bitcast(x, I32)
        magnitude = ops.bitcast(ops.bit_and(bits, int(MAGNITUDE)), F32)
        magnitude = ops.minimum(magnitude, self.largest)
        large = ops.add(self._exponent(ops, magnitude), (23 - self.mantissa) << 23)
        large = ops.bitcast(large, F32)
        found = ops.bitcast(ops.sub(ops.add(magnitude, large), large), I32)
        return ops.bitcast(ops.bit_or(found, ops.bit_and(bits, int(~MAGNITUDE))), F32)

    def codes(self, ops: ArrayOps, x: Array) -> Array:
        """Codes, as `encode`, of the nearest number, k units of its last place."""
        y = self.nearest(ops, x)
        e = self._exponent(ops, y)
        units = ops.sub(254 << 23, ops.sub(e, self.mantissa << 23))  # one by that of the last place
        k = ops.convert(ops.mul(ops.abs(y), ops.bitcast(units, F32)), I32)
        steps = ops.sub(ops.shift_right(e, 23), 128 - self.bias)
        code = ops.add(k, ops.shift_left(steps, self.mantissa))
        sign = ops.shift_right(ops.bitcast(x, I32), 32 - self.bits)
        return ops.convert(ops.bit_or(code, ops.bit_and(sign, 1 << (self.bits - 1))), I8)

    def _exponent(self, ops: ArrayOps, x: Array) -> Array:
        """The exponent of each f32, or of the smallest normal number, as the field of an f32."""
        e = ops.bit_and(ops.bitcast(x, I32), int(EXPONENT))
        return ops.maximum(e, (128 - self.bias) << 23)

    def multiples(self, ops: ArrayOps, codes: Array) -> Array:
        """Multiples of the unit, by shifts: a compiler would read a table one by one."""
        m = self.mantissa
        fraction = ops.bit_and(codes, (1 << m) - 1)
        field = ops.bit_and(ops.shift_right(codes, m), (1 << self.exponent) - 1)
        up = ops.maximum(ops.sub(field, 1), 0)
        normal = ops.shift_left(ops.add(fraction, 1 << m), up)
        k = ops.select(ops.equal(field, 0), fraction, normal)
        sign = ops.bit_and(codes, 1 << (self.bits - 1))
        return ops.select(ops.equal(sign, 0), k, ops.sub(0, k))

    def decode(self, ops: ArrayOps, codes: Array) -> Array:
        """Float32 values of int8 codes; every code is decoded, NaN and infinities included."""
        if self.bits > 4:
            return self._through_half(ops, codes)
        return ops.take(self._through_half(NUMPY, np.arange(1 << self.bits, dtype=np.int8)), codes)

    def of_elements(self, ops: ArrayOps, x: Array) -> Array:
        return self.decode(ops, x) if self.element_type is None else ops.convert(x, F32)

    def _through_half(self, ops: ArrayOps, codes: Array) -> Array:
        """The numbers as float16 of another bias: the fields go to their places there, and a power
        of two sets the bias right. What is subnormal here is subnormal there, and a processor's
        conversion to float32 knows it."""
        fields, up = (1 << (self.bits - 1)) - 1, 10 - self.mantissa
        wide = ops.convert(codes, I16)
        half = ops.bit_and(ops.shift_left(wide, up), fields << up)
        if self.largest_code < fields and self.exponent < 5:
            last = ops.add(half, 1 << up)  # carries into the exponent's highest bit
            half = ops.bit_or(half, ops.bit_and(last, 1 << 14))
        sign = ops.bit_and(ops.shift_left(wide, 16 - self.bits), -(1 << 15))
        half = ops.bitcast(ops.bit_or(half, sign), np.float16)
        return ops.mul(ops.convert(half, F32), 2.0 ** (15 - self.bias))


_TYPES = {
    (4, 3): np.dtype(ml_dtypes.float8_e4m3fn),
    (5, 2): np.dtype(ml_dtypes.float8_e5m2),
    (2, 1): np.dtype(ml_dtypes.float4_e2m1fn),
}
E4M3FN = Minifloat(4, 3, largest_code=0x7E)
E5M2 = Minifloat(5, 2, largest_code=0x7B)
E3M2 = Minifloat(3, 2, largest_code=0x1F)
E2M3 = Minifloat(2, 3, largest_code=0x1F)
E2M1 = Minifloat(2, 1, largest_code=0x07)
