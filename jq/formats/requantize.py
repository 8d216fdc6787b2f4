"""Integer rescale: a real factor as an int32 mantissa and a shift, rounded as the device rounds.

    M = mantissa * 2^(exponent - 31),  mantissa in [2^30, 2^31),  or negative of that

`double` rounds twice, as gemmlowp and TFLite's reference kernels do (Jacob et al., 2018), and as
TOSA's RESCALE with DOUBLE_ROUND does:

    rescale(x) = rounding_right_shift(doubling_high_multiply(x << max(exponent, 0), mantissa),
                                      max(-exponent, 0))

`doubling_high_multiply(a, b)` is `floor((a * b + 2^30) / 2^31)`, the right shift rounds ties away
from zero, the left shift saturates to int32. `single` rounds once, ties towards plus infinity, as
TOSA's RESCALE with SINGLE_ROUND does:

    rescale(x) = (x * mantissa + 2^(s - 1)) >> s,  s = 31 - exponent

`float32` is what XNNPACK and ONNX Runtime compute, in integers: the factor, the sum and their
product are rounded to 24 bits each, and the product to an integer, ties to even:

    rescale(x) = rint(float32(float32(x) * float32(factor)))

Sums of 64 bits, those of TFLite's kernels for codes of 16, are rounded once whatever the rounding,
by a mantissa of 15 bits: `(x * m + 2^(s - 1)) >> s`, `m = min((mantissa + 2^15) >> 16, 2^15 - 1)`,
`s = 15 - exponent`, |x| < 2^47 (https://github.com/google-ai-edge/LiteRT, tflite/kernels/internal).

A device without elements of 64 bits computes both from products of 16 by 16 bits: the same numbers.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from jq.base.errors import FormatError
from jq.formats.arrays import Array, IntegerOps, arrays_of, clip
from jq.formats.blocks import full

INT32 = np.iinfo(np.int32)
I32, I64 = np.int32, np.int64
LARGEST = 2.0**28  # of factors: with every rounding, and far beyond all codes
MAX_SHIFT = 40  # a factor below 2^-40 gives 0 for every int32
MAX_LEFT = 29  # of exponents that are rounded once
DIGITS = 24  # bits of a float32 number
Rounding = Literal["double", "single", "float32"]
Shifts = tuple[Array | None, Array | None]  # max(exponent, 0), max(-exponent, 0); None: all are 0


def multiplier(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Splits real factors into `mantissa * 2^(exponent - 31)`.

    Of floats of any shape, int32 of the same shape each; |mantissa| is in [2^30, 2^31). A factor of
    0, or one too small for the longest shift, is (0, 0).

    Raises:
        FormatError: a factor is not finite, or 2^31 and more."""
    factor = np.asarray(factor, np.float64)
    if not np.isfinite(factor).all() or (np.abs(factor) >= 2.0**31).any():
        raise FormatError("a rescale factor is not finite or too large for an int32 mantissa")
    fraction, exponent = np.frexp(factor)
    mantissa = np.rint(fraction * 2.0**31).astype(I64)
    whole = np.abs(mantissa) == 1 << 31  # rounded up to the next power of two
    mantissa, exponent = np.where(whole, mantissa // 2, mantissa), exponent + whole
    tiny = exponent < -MAX_SHIFT
    mantissa, exponent = np.where(tiny, 0, mantissa), np.where(tiny, 0, exponent)
    return mantissa.astype(np.int32), exponent.astype(np.int32)


def rounding_right_shift(ops: IntegerOps, x: Array, by: Array | int) -> Array:
    """`x / 2^by` rounded to nearest, ties away from zero; `by` in [0, bits - 1], of x's type."""
    x, by = arrays_of(ops, (x, by))
    top = 8 * ops.dtype(x).itemsize - 1
    mask = ops.sub(ops.shift_left(1, by), 1)
    negative = ops.shift_right_signed(x, top)  # -1 or 0
    threshold = ops.sub(ops.shift_right_signed(mask, 1), negative)
    above = ops.sub(threshold, ops.bit_and(x, mask))  # negative where it rounds up
    return ops.sub(ops.shift_right_signed(x, by), ops.shift_right_signed(above, top))


@dataclass(frozen=True)
class Rescaling:
    """A device's way to rescale: `rounding` of the module's formulas, in elements of `bits` bits.

    Both widths give the same numbers; `float32` needs 64 bits."""

    rounding: Rounding = "double"
    bits: Literal[64, 32] = 64

    def rescale(self, ops: IntegerOps, x: Array, mantissa: Array, shifts: Shifts) -> Array:
        """The module's `rescale` of int32 x, of any shape; all others have that shape and type, and
        |mantissa| is below 2^31; of int64 x it is that of `split(wide=True)`."""
        left, right = shifts
        wide = ops.dtype(x) == I64
        if left is not None and self.rounding != "float32" and not wide:
            x = _saturated(ops, x, left, shifted=self.rounding == "double")
        if wide or self.rounding != "double":
            by = 15 if wide else 31
            s = full(ops, by, ops.shape(x), I32) if left is None else ops.sub(by, left)
            s = s if right is None else ops.add(s, right)
            if wide:
                return _single(ops, x, mantissa, s)
            if self.rounding == "float32":
                return _of_floats(ops, x, mantissa, s)
            return (_single if self.bits == 64 else _single_of_halves)(ops, x, mantissa, s)
        y = (_high if self.bits == 64 else _high_of_halves)(ops, x, mantissa)
        return y if right is None else _shifted_right(ops, y, right)

    def by(self, ops: IntegerOps, x: Array, factor: float) -> Array:
        """`x * factor`, by one factor for all elements: int32 of x's shape.

        Raises:
            FormatError: the factor is not finite or too large."""
        shape, (mantissa, *shifts) = ops.shape(x), map(int, self.split(np.asarray(factor)))
        left, right = (full(ops, by, shape, I32) if by else None for by in shifts)
        return self.rescale(ops, x, full(ops, mantissa, shape, I32), (left, right))

    def split(self, factor: np.ndarray, *, wide: bool = False) -> tuple[np.ndarray, ...]:
        """Mantissa, left and right shift of factors: int32 of their shape; `wide`: for 64-bit sums.

        Raises:
            FormatError: a factor is not finite, or too large for how the device rounds."""
        if self.rounding == "float32":
            factor = np.asarray(factor).astype(np.float32)
        mantissa, exponent = multiplier(factor)
        if wide:
            size = np.minimum((np.abs(mantissa.astype(I64)) + (1 << 15)) >> 16, (1 << 15) - 1)
            mantissa = (np.sign(mantissa) * np.where(exponent < -31, 0, size)).astype(I32)
        elif self.rounding != "double" and (exponent > MAX_LEFT).any():
            what = f"a rescale factor is 2^{MAX_LEFT} or more: too large for how it rounds"
            raise FormatError(what)
        return mantissa, np.maximum(exponent, 0), np.maximum(-exponent, 0)

    def shift(self, ops: IntegerOps, x: Array, bits: int) -> Array:
        """`x * 2^bits`: exact where bits > 0 and it fits int32, else rounded as a rescale."""
        if bits >= 0:
            return ops.shift_left(x, bits) if bits else x
        return self.by(ops, x, 2.0**bits)


DOUBLE, SINGLE = Rescaling(), Rescaling("single")


def _saturated(ops: IntegerOps, x: Array, left: Array, *, shifted: bool) -> Array:
    """`x << left` saturated to int32, or x such that it would be."""
    high = ops.shift_right_signed(INT32.max, left)
    inside = ops.minimum(ops.maximum(x, ops.sub(-1, high)), high)
    if not shifted:
        return inside
    # The largest x gives 2^31 - 2^left: int32's own end is where x was beyond it.
    result = ops.shift_left(inside, left)
    return ops.select(ops.equal(ops.minimum(x, high), x), result, INT32.max)


def _high(ops: IntegerOps, x: Array, mantissa: Array) -> Array:
    """`floor((x * mantissa + 2^30) / 2^31)`."""
    product = ops.mul(ops.convert(x, I64), ops.convert(mantissa, I64))
    return ops.convert(ops.shift_right_signed(ops.add(product, 1 << 30), 31), I32)


def _single(ops: IntegerOps, x: Array, mantissa: Array, s: Array) -> Array:
    """`(x * mantissa + 2^(s - 1)) >> s`; of a shift beyond all products, 0."""
    product = ops.mul(ops.convert(x, I64), ops.convert(mantissa, I64))
    by = ops.minimum(ops.convert(s, I64), 63)
    half = ops.shift_left(1, ops.sub(by, 1))
    return ops.convert(ops.shift_right_signed(ops.add(product, half), by), I32)


def _to_even(ops: IntegerOps, x: Array, by: Array) -> Array:
    """`x / 2^by` of int64 x in [0, 2^62], rounded to nearest, ties to even; `by` in [0, 63]."""
    below = ops.shift_right_signed(x, by)
    half = ops.shift_right(ops.shift_left(1, by), 1)  # 0 of no shift
    added = ops.add(ops.sub(half, 1), ops.bit_and(below, 1))
    return ops.shift_right_signed(ops.add(x, ops.maximum(added, 0)), by)


def _digits(ops: IntegerOps, x: Array) -> Array:
    """The float32 number nearest to int64 x in [0, 2^62], which is an integer."""
    by = ops.maximum(ops.sub(64 - DIGITS, ops.leading_zeros(x)), 0)
    return ops.shift_left(_to_even(ops, x, by), by)


def _of_floats(ops: IntegerOps, x: Array, mantissa: Array, s: Array) -> Array:
    """`rint(float32(x) * mantissa * 2^-s)` of a mantissa with 24 bits, the product in float32."""
    wide, m = ops.convert(x, I64), ops.convert(mantissa, I64)
    product = _digits(ops, ops.mul(_digits(ops, ops.abs(wide)), ops.abs(m)))  # at most 2^62
    by = ops.minimum(ops.convert(s, I64), 63)
    y = ops.minimum(_to_even(ops, product, by), INT32.max)
    return ops.convert(ops.mul(y, ops.mul(sign(ops, wide), sign(ops, m))), I32)


def sign(ops: IntegerOps, x: Array) -> Array:
    """-1 or 1 of int64 x; 1 for 0."""
    negative = ops.shift_right_signed(x, 63)
    return ops.add(ops.add(negative, negative), 1)


def _product(ops: IntegerOps, x: Array, y: Array) -> tuple[Array, Array]:
    """The high and low 32 bits of the product of int32 numbers, from their 16-bit halves."""
    low = [ops.bit_and(v, 0xFFFF) for v in (x, y)]
    high = [ops.shift_right_signed(v, 16) for v in (x, y)]
    first = ops.mul(low[0], low[1])  # unsigned
    cross = ops.add(ops.mul(high[0], low[1]), ops.shift_right(first, 16))  # below 2^31: no wrap
    other = ops.add(ops.mul(low[0], high[1]), ops.bit_and(cross, 0xFFFF))
    top = ops.add(ops.mul(high[0], high[1]), ops.shift_right_signed(cross, 16))
    return ops.add(top, ops.shift_right_signed(other, 16)), ops.mul(x, y)


def _bit(ops: IntegerOps, x: Array, at: Array | int) -> Array:
    return ops.bit_and(ops.shift_right(x, at), 1)


def _high_of_halves(ops: IntegerOps, x: Array, mantissa: Array) -> Array:
    """`_high` without 64 bits: bits 31 to 62 of the product, and bit 30 rounds."""
    high, low = _product(ops, x, mantissa)
    y = ops.bit_or(ops.shift_left(high, 1), ops.shift_right(low, 31))
    return ops.add(y, _bit(ops, low, 30))


def _single_of_halves(ops: IntegerOps, x: Array, mantissa: Array, s: Array) -> Array:
    """`_single` without 64 bits: the high part where s > 32, else of both; bit s - 1 rounds."""
    high, low = _product(ops, x, mantissa)
    over = clip(ops, ops.sub(s, 32), 0, 31)  # s - 32 where that is no less than 0
    under = clip(ops, s, 1, 31)
    near = ops.bit_or(ops.shift_left(high, ops.sub(32, under)), ops.shift_right(low, under))
    y = ops.select(ops.equal(under, s), near, ops.shift_right_signed(high, over))
    half_high = _bit(ops, high, clip(ops, ops.sub(over, 1), 0, 31))
    half_low = _bit(ops, low, clip(ops, ops.sub(s, 1), 0, 31))
    result = ops.add(y, ops.select(ops.equal(over, 0), half_low, half_high))
    # From 63 on, 2^(s - 1) is no less than any product: nothing is left.
    return ops.select(ops.equal(ops.minimum(s, 62), s), result, 0)


def _shifted_right(ops: IntegerOps, x: Array, by: Array) -> Array:
    """`rounding_right_shift` of int32 below 2^31 in size: by 32 and more it is 0."""
    within = ops.minimum(by, 31)
    return ops.select(ops.equal(within, by), rounding_right_shift(ops, x, within), 0)
