"""The arithmetic of affine integers, once for NumPy and for programs."""

from typing import Any

import numpy as np

from jq.formats import checks
from jq.formats.arrays import Array, ArrayOps
from jq.formats.base import Encoding
from jq.formats.blocks import expand, full

F32 = np.float32


def zero_if_nan(ops: ArrayOps, x: Array) -> Array:
    """`x` (floats of any shape) with 0 in place of NaN; infinities stay."""
    return ops.select(ops.equal(x, x), x, full(ops, 0, ops.shape(x), F32))


def scale_of_extent(ops: ArrayOps, extent: Array, steps: float) -> tuple[Array, Array]:
    """`extent / steps` and its inverse, f32; both 1 where the scale would be below 2^-126.

    NaN and infinity pass through.
    """
    shape = ops.shape(extent)
    tiny = full(ops, steps * float(checks.SMALLEST_SCALE), shape, F32)
    is_zero = ops.equal(ops.maximum(extent, tiny), tiny)
    # 1 / 1 for a zero block. The divisor depends on data, for XLA would turn a division by a
    # constant into a multiplication, an ulp away.
    one = full(ops, 1, shape, F32)
    divisor = ops.select(is_zero, one, full(ops, steps, shape, F32))
    extent = ops.select(is_zero, one, extent)
    return ops.div(extent, divisor), ops.div(divisor, extent)


def zero_point_of_range(ops: ArrayOps, lo: Array, scale: Array, low: int, high: int) -> Array:
    """`round(saturate(low - min(lo, 0) / scale))` in i32, for codes in [low, high]."""
    shape = ops.shape(lo)
    lo = ops.minimum(lo, full(ops, 0, shape, F32))
    least, most = full(ops, low, shape, F32), full(ops, high, shape, F32)
    x = ops.sub(least, ops.div(lo, scale))
    x = ops.round_even(ops.minimum(ops.maximum(x, least), most))
    return ops.convert(zero_if_nan(ops, x), np.int32)


def to_codes(
    ops: ArrayOps,
    steps: Array,
    zero_point: Array | None,
    limits: tuple[int, int],
    code_type: np.dtype[Any],
    enc: Encoding,
) -> Array:
    """`saturate(round_half_even(steps) + zero_point)`, the sum in integers; NaN counts as 0.

    Saturates while still float: a conversion out of range wraps in IREE.
    """
    low, high = (full(ops, v, enc.grid, F32) for v in limits)
    if zero_point is not None:
        offset = ops.convert(zero_point, F32)
        low, high = ops.sub(low, offset), ops.sub(high, offset)
    q = ops.round_even(zero_if_nan(ops, steps))
    q = ops.minimum(ops.maximum(q, expand(ops, low, enc)), expand(ops, high, enc))
    if zero_point is not None:
        q = ops.add(ops.convert(q, np.int32), expand(ops, zero_point, enc))
    return ops.convert(q, code_type)
