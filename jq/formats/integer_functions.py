"""Softmax and normalizations from codes to codes in integer arithmetic alone.

Written against `IntegerOps`: NumPy is the specification. Bounds are in steps of the result."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.formats.arrays import NUMPY, Array, IntegerOps, clip
from jq.formats.requantize import DOUBLE, LARGEST, Rescaling, rounding_right_shift, sign


def root(ops: IntegerOps, x: Array) -> Array:
    """`floor(sqrt(x))` of int64 x in [1, 2^62), by Newton's method from above.

    The start 2^ceil(bits/2) is at most twice the root (or 2 too large); the relative error e
    becomes at most e^2 / 2, so six steps leave less than one, and the last line is exact."""
    bits = ops.sub(64, ops.leading_zeros(x))
    r = ops.shift_left(1, ops.shift_right_signed(ops.add(bits, 1), 1))
    for _ in range(6):
        r = ops.shift_right_signed(ops.add(r, ops.quotient(x, r)), 1)
    return ops.add(r, ops.shift_right_signed(ops.sub(x, ops.mul(r, r)), 63))


def unit_rows(
    ops: IntegerOps,
    x: Array,
    step: float,
    epsilon: float,
    *,
    center: bool,
    axis: int,
    limits: tuple[int, int] = (-255, 255),
) -> Array:
    """Rows divided by their length, in units of 2^-30: int64, at most 2^30 in size.

    With u = step * (x - mean) or step * x, n values in a row:
    `u / sqrt(sum(u^2) + n * epsilon)`. The normal form of LayerNorm and RMSNorm is this times
    sqrt(n). Error at most 3 units: root and inverse are right to 2^-30 relative, then one rounding.
    The mean is exact where squares leave room for it (n < 2^15 of 8-bit codes, n < 1291 of
    16-bit ones), else right to 2^-(f+1) of a code, see `_centered`.

    Args:
        x: int64 codes minus zero point, within `limits`."""
    n = ops.shape(x)[axis]
    if center:
        x, unit = _centered(ops, x, axis, limits)
        step /= unit
    squares = ops.reduce_sum(ops.mul(x, x), [axis])
    small = max(1, min(round(n * epsilon / step**2), 1 << 58))
    w = ops.add(squares, small)
    half = ops.shift_right_signed(ops.sub(ops.leading_zeros(w), 2), 1)
    r = root(ops, ops.shift_left(w, ops.add(half, half)))  # in [2^30, 2^31)
    inverse = ops.quotient(1 << 61, r)  # 2^61 / (2^half sqrt(w))
    by = ops.sub(31, half)
    product = ops.mul(x, _like(ops, inverse, x))
    return rounding_right_shift(ops, product, _like(ops, by, x))


def _centered(ops: IntegerOps, x: Array, axis: int, limits: tuple[int, int]) -> tuple[Array, int]:
    """`unit * (x - mean)` and its unit: n, which is exact, or else 2^f, the mean rounded.

    The sum of squares of the result is at most `n * (unit * (high - low) / 2)^2 < 2^61`."""
    n, (low, high) = ops.shape(x)[axis], limits
    total = ops.reduce_sum(x, [axis])
    room = (1 << 63) // (n * (high - low) ** 2)
    if n * n <= room:
        return ops.sub(ops.mul(x, n), _like(ops, total, x)), n
    f = (room.bit_length() - 1) // 2
    positive = ops.sub(total, n * low)
    shifted = ops.add(ops.shift_left(positive, f), n // 2)
    mean = ops.quotient(shifted, n)  # of x - low
    return ops.sub(ops.shift_left(ops.sub(x, low), f), _like(ops, mean, x)), 1 << f


def _like(ops: IntegerOps, rows: Array, x: Array) -> Array:
    return ops.broadcast(rows, ops.shape(x), range(len(ops.shape(x))))


I64 = np.int64
FRACTION = 8  # bits below the code that a sum of two rescaled terms keeps
FARTHEST = 1 << 22  # steps: far beyond all codes, with their fractions in int32
WIDE = 1 << 30  # a sum in front of softmax saturates here: no difference leaves int32
TABLE_LIMIT = 1 << 10  # entries of a table of exponentials; from there on two share the bits


@dataclass(frozen=True)
class Output:
    """The codes that come out: real = scale * (code - zero_point), saturated to [low, high]; `wide`
    ones have 16 bits whatever their limits are."""

    scale: float
    zero_point: int
    low: int
    high: int
    wide: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the codes."""
        narrow = not self.wide and self.low >= -128 and self.high <= 127
        return np.dtype(np.int8 if narrow else np.int16)


NO_OUTPUT = Output(1.0, 0, 0, 0)  # of a step whose result is not known yet, or that makes no codes


def saturated(ops: IntegerOps, steps: Array, out: Output) -> Array:
    """`min(max(steps + zero point, low), high)` of integers of 32 bits or more, in `out.dtype`."""
    zero = out.zero_point
    inside = clip(ops, steps, out.low - zero, out.high - zero)  # first, so that no sum wraps
    return ops.convert(ops.add(inside, zero) if zero else inside, out.dtype)


def tabulated(
    ops: IntegerOps, index: Array, steps: np.ndarray, out: Output, whole: bool = False
) -> Array:
    """Codes of `out` for a function that is known for every code of its argument.

    256 values are a table. Of 65,536 every 2^b-th stands in one, with 8 fractional bits, and what
    lies between is interpolated: b is the largest for which no code at all is more than one step
    off (tried here, one by one; see `segments`). A function that jumps is one `whole` table.

    Args:
        index: int32, number of the code from 0 on.
        steps: float64, the function in steps of `out`, by index."""
    bits = 0 if whole else segments(steps, out)
    if not bits:
        codes = np.clip(np.rint(steps) + out.zero_point, out.low, out.high)
        return ops.take(codes.astype(out.dtype), index)
    return _interpolated(ops, index, _knots(steps, bits), bits, out)


def segments(steps: np.ndarray, out: Output) -> int:
    """Bits of the longest segment of an interpolated table that is right to one step; 0: none."""
    exact = np.clip(np.rint(steps) + out.zero_point, out.low, out.high)
    index = np.arange(len(steps), dtype=np.int32)
    for bits in (8, 6, 4) if len(steps) > 256 else ():
        found = _interpolated(NUMPY, index, _knots(steps, bits), bits, out)
        if np.abs(found - exact).max() <= 1:
            return bits
    return 0


def _knots(steps: np.ndarray, bits: int) -> np.ndarray:
    """Every 2^bits-th value in fractions of a step, and the one after the last; int32."""
    values = np.array([*steps[:: 1 << bits], 2 * steps[-1] - steps[-2]])
    return np.rint(np.clip(values, -FARTHEST, FARTHEST) * (1 << FRACTION)).astype(np.int32)


def _interpolated(
    ops: IntegerOps, index: Array, knots: np.ndarray, bits: int, out: Output
) -> Array:
    segment = ops.shift_right_signed(index, bits)
    first = _looked_up(ops, knots, segment)
    last = _looked_up(ops, knots, ops.add(segment, 1))
    part = ops.convert(ops.bit_and(index, (1 << bits) - 1), I64)
    whole = ops.shift_left(first, bits)
    y = ops.add(whole, ops.mul(ops.sub(last, first), part))
    return saturated(ops, rounding_right_shift(ops, y, bits + FRACTION), out)


def exponentials(ops: IntegerOps, below: Array, step: float, terms: int) -> Array:
    """`2^k * exp(-step * below)` of int64 `below >= 0`, int64, with k of `exponential_bits`.

    From one table where that is small: right to half a unit. Else a product of two, of the high and
    the low bits of `below`: right to 1.5 units."""
    low_bits, high, low = exponential_tables(step, exponential_bits(terms))
    index = clip(ops, ops.shift_right_signed(below, low_bits), 0, len(high) - 1)
    e = _looked_up(ops, high, index)
    if not low_bits:
        return e
    rest = ops.bit_and(below, (1 << low_bits) - 1)
    return rounding_right_shift(ops, ops.mul(e, _looked_up(ops, low, rest)), 30)


def exponential_tables(step: float, k: int) -> tuple[int, np.ndarray, np.ndarray]:
    """The number of low bits with a table of their own (0 where one table is small), the table of
    the others, in units of 2^-k, and that of the low ones, in units of 2^-30."""
    count = math.ceil((k + 1) * math.log(2) / step) + 2  # from there on it is 0
    low_bits = 0 if count <= TABLE_LIMIT else math.ceil(math.log2(count) / 2)
    size = (count >> low_bits) + 2
    high = np.rint(2.0**k * np.exp(-step * (np.arange(size) * 2.0**low_bits)))
    return low_bits, high, np.rint(2.0**30 * np.exp(-step * np.arange(1 << low_bits)))


def _looked_up(ops: IntegerOps, table: np.ndarray, index: Array) -> Array:
    return ops.convert(ops.take(table.astype(np.int32), ops.convert(index, np.int32)), I64)


def exponential_bits(terms: int) -> int:
    """k = 30 - ceil(log2(terms)): a sum of `terms` numbers up to 2^k stays below 2^31."""
    return 30 - math.ceil(math.log2(max(terms, 2)))


def in_units(ops: IntegerOps, codes: Array, largest: int, by: float, rescaling: Rescaling) -> Array:
    """int32 codes, at most `largest` in size, times `by`: a term of what softmax takes, int64.

    Of a mask as large as floats are, one step is beyond all sums."""
    by = min(by, LARGEST)
    if by * largest < WIDE:
        return ops.convert(rescaling.by(ops, codes, by), I64)
    wide = ops.convert(rescaling.by(ops, codes, by / 4), I64)  # may saturate from 2^30 on
    return ops.mul(wide, 4)


def softmax(
    ops: IntegerOps, x: Array, step: float, axis: int, out: Output, rescaling: Rescaling = DOUBLE
) -> Array:
    """Softmax along `axis` of real values `step * x`, as codes of `out`.

    A quotient has 30 fractional bits and an exponential an error of u units of 2^-k (see
    `exponentials`; u is 1/2 or 3/2): with n terms the result is within
    `1/2 + (2 u (n + 1) + 2) * 2^-(k+1) / out.scale` of the exact softmax of `step * x`, plus 2^-22
    for the two roundings of a small quotient.

    Args:
        x: int64; differences along `axis` must fit int32."""
    terms = ops.shape(x)[axis]
    k = exponential_bits(terms)
    largest = _like(ops, ops.reduce_max(x, [axis]), x)
    e = exponentials(ops, ops.sub(largest, x), step, terms)
    total = ops.reduce_sum(e, [axis])
    inverse = _like(ops, ops.quotient(1 << (k + 31), total), x)  # <= 2^31
    share = rounding_right_shift(ops, ops.mul(e, inverse), k + 1)  # 2^-30 units
    share = ops.convert(share, np.int32)
    return saturated(ops, rescaling.by(ops, share, 2.0**-30 / out.scale), out)


def ratio(ops: IntegerOps, a: Array, b: Array, bits: int) -> Array:
    """`round(2^bits * a / b)`, ties away from zero, within int32; int64.

    `a / 0` is the end of int32 on a's side, and 0 for `0 / 0`.

    Args:
        a, b: int64, |a| * 2^bits < 2^62."""
    end = (1 << 31) - 1
    a = ops.mul(a, sign(ops, b))
    size, by = ops.abs(a), ops.maximum(ops.abs(b), 1)
    half = ops.shift_right_signed(by, 1)
    q = ops.quotient(ops.add(ops.shift_left(size, bits), half), by)
    unbounded = ops.mul(ops.minimum(size, 1), end)
    q = ops.select(ops.equal(b, 0), unbounded, ops.minimum(q, end))
    return ops.mul(q, sign(ops, a))
