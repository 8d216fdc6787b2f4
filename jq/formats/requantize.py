"""Integer-only rescale: a real factor as an int32 mantissa and a shift (gemmlowp's definition).

    M = mantissa * 2^(exponent - 31),  mantissa in [2^30, 2^31),  or negative of that
    rescale(x) = rounding_right_shift(doubling_high_multiply(x << max(exponent, 0), mantissa),
                                      max(-exponent, 0))

`doubling_high_multiply(a, b)` is `floor((a * b + 2^30) / 2^31)` (Jacob et al. 2018; a and b are
int32, never both -2^31), the right shift rounds ties away from zero, the left shift saturates
to int32. Everything is computed in int64, so no step wraps.
"""

from __future__ import annotations

import numpy as np

from jq.errors import FormatError
from jq.formats.arrays import Array, IntegerOps

INT32 = np.iinfo(np.int32)
I64 = np.int64
MAX_SHIFT = 40  # a factor below 2^-40 gives 0 for every int32


def multiplier(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Splits real factors into `mantissa * 2^(exponent - 31)`.

    Args:
        factor: floats of any shape, of magnitude below 2^31.

    Returns:
        `(mantissa, exponent)`, int32 of the same shape. |mantissa| is in [2^30, 2^31); a factor
        of 0, or one too small for the longest shift, is (0, 0).

    Raises:
        FormatError: a factor is not finite, or 2^31 and more.
    """
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


def splat(ops: IntegerOps, value: int, like: Array) -> Array:
    """A constant of the shape and type of `like`."""
    return ops.broadcast(ops.constant(np.array(value, ops.dtype(like))), ops.shape(like), ())


def clip(ops: IntegerOps, x: Array, low: int, high: int) -> Array:
    """`min(max(x, low), high)` of integers of any shape; both limits are in the type of `x`."""
    return ops.minimum(ops.maximum(x, splat(ops, low, x)), splat(ops, high, x))


def rescale(
    ops: IntegerOps, x: Array, mantissa: Array, left: Array | None, right: Array | None
) -> Array:
    """The module's `rescale` of int64 `x` that holds int32 values; int64, unsaturated.

    Args:
        mantissa, left, right: int64 of x's shape; `left = max(exponent, 0)` and
            `right = max(-exponent, 0)`, None where they are all 0.
    """
    if left is not None:
        x = clip(ops, ops.shift_left(x, left), INT32.min, INT32.max)
    high = ops.add(ops.mul(x, mantissa), splat(ops, 1 << 30, x))
    y = ops.shift_right_signed(high, splat(ops, 31, x))
    return y if right is None else rounding_right_shift(ops, y, right)


def rounding_right_shift(ops: IntegerOps, x: Array, by: Array) -> Array:
    """`x / 2^by` rounded to nearest, ties away from zero; int64, `by` of x's shape."""
    one, top = splat(ops, 1, x), splat(ops, 63, x)
    mask = ops.sub(ops.shift_left(one, by), one)
    negative = ops.shift_right_signed(x, top)  # -1 or 0
    threshold = ops.sub(ops.shift_right_signed(mask, one), negative)
    above = ops.sub(threshold, ops.bit_and(x, mask))  # negative where it rounds up
    return ops.sub(ops.shift_right_signed(x, by), ops.shift_right_signed(above, top))


def rescale_by(ops: IntegerOps, x: Array, factor: float) -> Array:
    """`x * factor`, rounded as `rescale` defines it, by one factor for all elements.

    Args:
        x: int64 of any shape.
        factor: of magnitude below 2^31.

    Raises:
        FormatError: the factor is not finite or too large.
    """
    mantissa, exponent = multiplier(np.asarray(factor))
    e = int(exponent)
    return rescale(
        ops,
        x,
        splat(ops, int(mantissa), x),
        splat(ops, e, x) if e > 0 else None,
        splat(ops, -e, x) if e < 0 else None,
    )
