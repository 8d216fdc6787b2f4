"""Softmax and normalizations from codes to codes in integer arithmetic alone.

Written against `IntegerOps`: NumPy is the specification. Bounds are in steps of the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.formats.arrays import Array, IntegerOps
from jq.formats.requantize import clip, rescale_by, rounding_right_shift, splat

I64 = np.int64
FRACTION = 8  # bits below the code that a sum of two rescaled terms keeps
TABLE_LIMIT = 1 << 16


@dataclass(frozen=True)
class Output:
    """The codes that come out: real = scale * (code - zero_point), saturated to [low, high]."""

    scale: float
    zero_point: int
    low: int
    high: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the codes."""
        return np.dtype(np.int8 if self.low >= -128 and self.high <= 127 else np.int16)


def exponentials(step: float, terms: int) -> np.ndarray:
    """`round(2^k * exp(-step * d))` for d = 0, 1, ... until it is 0, int32.

    k = 30 - ceil(log2(terms)), so that a sum of `terms` entries stays below 2^31.
    """
    k = _exponential_bits(terms)
    count = min(math.ceil((k + 1) * math.log(2) / step) + 2, TABLE_LIMIT)
    return np.rint(2.0**k * np.exp(-step * np.arange(count))).astype(np.int32)


def _exponential_bits(terms: int) -> int:
    return 30 - math.ceil(math.log2(max(terms, 2)))


def softmax(ops: IntegerOps, x: Array, step: float, axis: int, out: Output) -> Array:
    """Softmax along `axis` of real values `step * x`, as codes of `out`.

    A quotient has 30 fractional bits and an entry of the table an error of half of 2^-k (see
    `exponentials`): with n terms the result is within `1/2 + (n + 3) * 2^-(k+1) / out.scale` of
    the exact softmax of `step * x`, plus 2^-22 for the two roundings of a small quotient.

    Args:
        x: int64; differences along `axis` must fit int32.
    """
    terms = ops.shape(x)[axis]
    k, table = _exponential_bits(terms), exponentials(step, terms)
    largest = ops.broadcast(ops.reduce_max(x, [axis]), ops.shape(x), range(len(ops.shape(x))))
    below = clip(ops, ops.sub(largest, x), 0, len(table) - 1)
    e = ops.convert(ops.take(table, ops.convert(below, np.int32)), I64)
    total = ops.reduce_sum(e, [axis])
    inverse = ops.quotient(splat(ops, 1 << (k + 31), total), total)  # <= 2^31
    inverse = ops.broadcast(inverse, ops.shape(x), range(len(ops.shape(x))))
    share = rounding_right_shift(ops, ops.mul(e, inverse), splat(ops, k + 1, e))  # 2^-30 units
    return saturated(ops, rescale_by(ops, share, 2.0**-30 / out.scale), out)


def saturated(ops: IntegerOps, steps: Array, out: Output) -> Array:
    """Codes of whole steps: the zero point is added, then the limits apply."""
    code = ops.add(steps, splat(ops, out.zero_point, steps))
    return ops.convert(clip(ops, code, out.low, out.high), out.dtype)


def root(ops: IntegerOps, x: Array) -> Array:
    """`floor(sqrt(x))` of int64 x in [1, 2^62), by Newton's method from above.

    The start 2^ceil(bits/2) is at most twice the root (or 2 too large); the relative error e
    becomes at most e^2 / 2, so six steps leave less than one, and the last line is exact.
    """
    one = splat(ops, 1, x)
    bits = ops.sub(splat(ops, 64, x), ops.leading_zeros(x))
    r = ops.shift_left(one, ops.shift_right_signed(ops.add(bits, one), one))
    for _ in range(6):
        r = ops.shift_right_signed(ops.add(r, ops.quotient(x, r)), one)
    return ops.add(r, ops.shift_right_signed(ops.sub(x, ops.mul(r, r)), splat(ops, 63, x)))


def unit_rows(
    ops: IntegerOps, x: Array, step: float, epsilon: float, *, center: bool, axis: int
) -> Array:
    """Rows divided by their length, in units of 2^-30: int64, at most 2^30 in size.

    With u = step * (x - mean) or step * x, n values in a row:
    `u / sqrt(sum(u^2) + n * epsilon)`. The normal form of LayerNorm and RMSNorm is this times
    sqrt(n). Error at most 3 units: root and inverse are right to 2^-30 relative, then one rounding.

    Args:
        x: int64 codes minus zero point, |x| < 2^9; n < 2^13.
    """
    n = ops.shape(x)[axis]
    assert n < 1 << 13, "rows of 8192 values and more overflow"
    axes = range(len(ops.shape(x)))
    shape = ops.shape(x)
    if center:
        total = ops.broadcast(ops.reduce_sum(x, [axis]), shape, axes)
        x, step = ops.sub(ops.mul(x, splat(ops, n, x)), total), step / n
    squares = ops.reduce_sum(ops.mul(x, x), [axis])
    small = max(1, min(round(n * epsilon / step**2), 1 << 58))
    w = ops.add(squares, splat(ops, small, squares))
    one = splat(ops, 1, w)
    half = ops.shift_right_signed(ops.sub(ops.leading_zeros(w), splat(ops, 2, w)), one)
    r = root(ops, ops.shift_left(w, ops.add(half, half)))  # in [2^30, 2^31)
    inverse = ops.quotient(splat(ops, 1 << 61, r), r)  # 2^61 / (2^half sqrt(w))
    by = ops.sub(splat(ops, 31, half), half)
    product = ops.mul(x, ops.broadcast(inverse, shape, axes))
    return rounding_right_shift(ops, product, ops.broadcast(by, shape, axes))
