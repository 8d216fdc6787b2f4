"""Normalizations in integers: roots, and rows of unit length."""

from jq.formats.arrays import Array, IntegerOps
from jq.formats.requantize import rounding_right_shift, splat


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
        x: int64 codes minus zero point, within `limits`.
    """
    n, axes, shape = ops.shape(x)[axis], range(len(ops.shape(x))), ops.shape(x)
    if center:
        x, unit = _centered(ops, x, axis, limits)
        step /= unit
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


def _centered(ops: IntegerOps, x: Array, axis: int, limits: tuple[int, int]) -> tuple[Array, int]:
    """`unit * (x - mean)` and its unit: n, which is exact, or else 2^f, the mean rounded.

    The sum of squares of the result is at most `n * (unit * (high - low) / 2)^2 < 2^61`.
    """
    n, (low, high) = ops.shape(x)[axis], limits
    total = ops.reduce_sum(x, [axis])
    room = (1 << 63) // (n * (high - low) ** 2)
    if n * n <= room:
        return ops.sub(ops.mul(x, splat(ops, n, x)), _like(ops, total, x)), n
    f = (room.bit_length() - 1) // 2
    positive = ops.sub(total, splat(ops, n * low, total))
    shifted = ops.add(ops.shift_left(positive, splat(ops, f, total)), splat(ops, n // 2, total))
    mean = ops.quotient(shifted, splat(ops, n, total))  # of x - low
    from_low = ops.shift_left(ops.sub(x, splat(ops, low, x)), splat(ops, f, x))
    return ops.sub(from_low, _like(ops, mean, x)), 1 << f


def _like(ops: IntegerOps, rows: Array, x: Array) -> Array:
    return ops.broadcast(rows, ops.shape(x), range(len(ops.shape(x))))
