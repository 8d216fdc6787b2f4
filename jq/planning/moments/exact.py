"""Sums with the same bits in any order, by any number of threads, on any processor.

Terms are rounded to integers, per channel: q = round(x / unit), where 2^b units are the power of
two above the largest |x|. With n terms of |q| <= 2^b (of their products, 2^2b), every partial sum
is an integer of at most 2^53, which float64 holds exactly, in whatever order it is reached.
Rounding costs 2^-b of a channel's largest value at most: b is 26 for a single row, 20 for 8,192
rows and 17 for half a million.

BLAS and XLA choose the order by the number of their threads, the shapes and the processor: codes
that were solved with sums of float32 differed between processes of one machine.
"""

from collections.abc import Sequence

import numpy as np

from jq.formats.arrays import Array
from jq.planning.calibration.stat_ops import NUMPY_STATS, StatOps

F64 = np.float64
EXACT = 53  # bits of an integer that float64 holds
# Takes the place of smaller largest values, of 0 too: no unit is 0, no step infinite.
LEAST = 2.0**-200
EXPONENT = np.array(0x7FF << 52, np.int64)  # of a float64


def gram(ops: StatOps, x: Array) -> Array:
    """x^T x in f64[groups, K, K] of [groups, rows, K], group by group."""
    shape = ops.shape(x)
    width = shape[2]
    q, unit = _integers(ops, x, [1], 2, shape[1])
    scale = ops.reshape(unit, (shape[0], width))
    product = ops.gram(q, q)
    for dims in ([0, 1], [0, 2]):
        product = ops.mul(product, ops.broadcast(scale, (shape[0], width, width), dims))
    return product


def gram_of_rows(x: np.ndarray) -> np.ndarray:
    """x^T x in f64[K, K] of [rows, K]; the bits of `gram` without its copies."""
    if not len(x):  # a call may select no row
        return np.zeros((x.shape[1], x.shape[1]), F64)
    q, unit = _integers(NUMPY_STATS, x, [0], 2, len(x))
    product = np.asarray(q.T @ q)
    product *= unit.T
    product *= unit
    return product


def total(ops: StatOps, x: Array, axes: Sequence[int]) -> Array:
    """Sums over axes, which are dropped, in f64."""
    shape = ops.shape(x)
    q, unit = _integers(ops, x, axes, 1, int(np.prod([shape[a] for a in axes])))
    found = ops.sum(q, axes)
    return ops.mul(found, ops.reshape(unit, ops.shape(found)))


def _integers(
    ops: StatOps, x: Array, axes: Sequence[int], factors: int, count: int
) -> tuple[Array, Array]:
    """Integers in f64, and their unit, with the axes that are summed over kept as 1.

    Args:
        factors: how many of them are multiplied to give a term.
        count: of terms.
    """
    bits = (EXACT - max(count - 1, 0).bit_length()) // factors
    x = ops.convert(x, F64)
    shape = ops.shape(x)
    most = ops.reduce_max(ops.abs(x), axes)
    small = ops.shape(most)

    def everywhere(value: float) -> Array:
        return ops.broadcast(ops.constant(np.array(value, F64)), small, [])

    most = ops.bitcast(ops.maximum(most, everywhere(LEAST)), np.int64)
    mask = ops.broadcast(ops.constant(EXPONENT), small, [])
    power = ops.bitcast(ops.bit_and(most, mask), F64)  # at most `most`, more than half of it
    steps = ops.broadcast(ops.div(everywhere(2.0 ** (bits - 1)), power), shape, range(len(shape)))
    return ops.round_even(ops.mul(x, steps)), ops.mul(power, everywhere(2.0 ** (1 - bits)))


__all__ = ["gram", "gram_of_rows", "total"]
