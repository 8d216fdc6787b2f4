"""A streaming histogram whose range grows by merging, in a program and in NumPy.

2048 bins of a width that is a power of two cover [-2^k, 2^k). To grow, k rises by d and 2^d
neighbours become one bin. Bins of different widths nest, so the counts depend only on the
data: not on its order, nor on how it was cut into batches, loop iterations or runs.

Packed as one i32[3 + 2048] (or i64) array, since a loop carries one value at a time:
[k, bits of the smallest value, bits of the largest, counts...]."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from jq.formats import NumpyOps
from jq.formats.arrays import Array, ArrayOps, clip
from jq.formats.blocks import full
from jq.ir import dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.arrays import StableHloOps
from jq.ir.build import fill


# Operations of statistics beyond `ArrayOps`: counting, rounding down, and sums.
# As formats are, a statistic is written once and means the same in NumPy and in a program.
class StatOps(ArrayOps, Protocol):
    """`ArrayOps` and what statistics need."""

    def floor(self, x: Array) -> Array: ...
    def shift_right_signed(self, a: Array, b: Array) -> Array: ...  # floor(a / 2^b)
    def accumulate(self, index: Array, values: Array, size: int) -> Array: ...
    def sum(self, x: Array, axes: Sequence[int]) -> Array: ...  # axes dropped
    def gram(self, x: Array, y: Array) -> Array: ...  # [g, n, a], [g, n, b] -> x^T y, [g, a, b]
    def rows(self, x: Array, index: Array) -> Array: ...  # [n, a], i32[m] -> [m, a]


class NumpyStats(NumpyOps):
    def floor(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.floor(x))

    def accumulate(self, index: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
        """Sums of the values that have index 0, 1, ..., size - 1 (all 1-D)."""
        out = np.zeros(size, values.dtype)
        np.add.at(out, index, values)
        return out

    def sum(self, x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
        return np.asarray(x.sum(axis=tuple(axes), dtype=x.dtype))

    def gram(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.swapaxes(x, 1, 2) @ y)

    def rows(self, x: np.ndarray, index: np.ndarray) -> np.ndarray:
        return np.asarray(x[index])


class ProgramStats(StableHloOps):
    def floor(self, x: ir.Value) -> ir.Value:
        return stablehlo.floor(x)

    def accumulate(self, index: ir.Value, values: ir.Value, size: int) -> ir.Value:
        dtype = dtype_of(values)
        numbers = stablehlo.ScatterDimensionNumbers.get([], [0], [], [], [0], 1)
        start = full(self, 0, (size,), dtype)
        op = stablehlo.ScatterOp([start.type], [start], index, [values], numbers)
        fill(op.operation, tensor_type((), dtype), stablehlo.add)
        return op.results[0]

    def sum(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        return self.reduce_sum(x, axes, keep=False)

    def gram(self, x: ir.Value, y: ir.Value) -> ir.Value:
        numbers = stablehlo.DotDimensionNumbers.get([0], [0], [1], [1])
        groups, _, width = shape_of(x)
        kind: Any = tensor_type((groups, width, shape_of(y)[2]), dtype_of(x))
        return stablehlo.dot_general(kind, x, y, numbers)

    def rows(self, x: ir.Value, index: ir.Value) -> ir.Value:
        numbers = stablehlo.GatherDimensionNumbers.get([1], [0], [], [], [0], 1)
        return stablehlo.gather(x, index, numbers, [1, shape_of(x)[1]])


NUMPY_STATS = NumpyStats()
PROGRAM_STATS = ProgramStats()


BINS = 2048
HEAD = 3
LOG_HALF = 10  # bins on one side, as a power of two
LOWEST, HIGHEST = -100, 127  # limits of k, so that the width is a normal float32
I32, F32 = np.int32, np.float32


def neutral() -> np.ndarray:
    """The histogram of no data."""
    packed = np.zeros(HEAD + BINS, I32)
    packed[0] = LOWEST
    packed[1], packed[2] = np.array([np.inf, -np.inf], F32).view(I32)
    return packed


def measure(ops: StatOps, x: Array) -> Array:
    """The packed histogram of a tensor.

    Args:
        x: floats of any shape. With NaN or infinity the smallest or largest value is not finite.

    Returns:
        i32 [3 + 2048]; `neutral()` for a tensor without elements."""
    count = int(np.prod(ops.shape(x)))
    if not count:
        return ops.constant(neutral())
    x = ops.reshape(ops.convert(x, F32), (count,))
    low, high = ops.reduce_min(x, (0,)), ops.reduce_max(x, (0,))
    largest = ops.maximum(ops.abs(low), ops.abs(high))
    # The smallest k with largest < 2^k, within limits; i32[1].
    k = ops.sub(ops.shift_right(ops.bitcast(largest, I32), 23), 126)
    k = clip(ops, k, LOWEST, HIGHEST)
    # x * 2^(10 - k): exact, since the factor is a power of two
    factor = ops.bitcast(ops.shift_left(ops.sub(LOG_HALF + 127, k), 23), F32)
    steps = ops.floor(ops.mul(x, ops.broadcast(factor, (count,), (0,))))
    index = _index(ops, ops.convert(steps, I32))
    counts = ops.accumulate(index, full(ops, 1, (count,), I32), BINS)
    return ops.concatenate([k, ops.bitcast(low, I32), ops.bitcast(high, I32), counts], 0)


def combine(ops: StatOps, a: Array, b: Array) -> Array:
    """The packed histogram of the data of both: integers are added, so the order has no effect.

    Args:
        a, b: i32 or i64 [3 + 2048], of the same type, in which no count may overflow."""
    kind = ops.dtype(a)
    head = [ops.slice(v, [0], [1]) for v in (a, b)]
    top = ops.maximum(*head)
    counts = [_coarsen(ops, v, ops.sub(top, k)) for v, k in zip((a, b), head, strict=True)]
    extremes = []
    for i, pick in ((1, ops.minimum), (2, ops.maximum)):
        bits = [ops.convert(ops.slice(v, [i], [i + 1]), I32) for v in (a, b)]
        chosen = pick(*(ops.bitcast(v, F32) for v in bits))
        extremes.append(ops.convert(ops.bitcast(chosen, I32), kind))
    return ops.concatenate([top, *extremes, ops.add(*counts)], 0)


def _coarsen(ops: StatOps, packed: Array, by: Array) -> Array:
    by = ops.minimum(ops.convert(by, I32), 31)
    bins = ops.constant(np.arange(BINS, dtype=I32) - BINS // 2)
    moved = ops.shift_right_signed(bins, ops.broadcast(by, (BINS,), (0,)))
    return ops.accumulate(_index(ops, moved), ops.slice(packed, [HEAD], [HEAD + BINS]), BINS)


def _index(ops: StatOps, steps: Array) -> Array:
    """Bin numbers 0 .. 2047 from -1024 .. 1023; what lies beyond goes to the ends."""
    return clip(ops, ops.add(steps, BINS // 2), 0, BINS - 1)


@dataclass(frozen=True)
class Histogram:
    """Counts of values in equal bins, for the methods that choose a range.

    Attributes:
        centers: f64[n], the middle of each bin (clipped to what was seen).
        counts: f64[n].
        width: of a bin.
        low, high: the smallest and largest value seen."""

    centers: np.ndarray
    counts: np.ndarray
    width: float
    low: float
    high: float

    @staticmethod
    def of(packed: np.ndarray) -> "Histogram":
        """Reads a packed histogram; empty bins beyond the outermost ones are left out."""
        k, counts = int(packed[0]), packed[HEAD:]
        low, high = (float(v) for v in packed[1:HEAD].astype(I32).view(F32))
        width = 2.0 ** (k - LOG_HALF)
        used = np.flatnonzero(counts)
        first, last = (used[0], used[-1] + 1) if len(used) else (BINS // 2, BINS // 2)
        edges = (np.arange(first, last) - BINS // 2) * width
        centers = np.clip(edges + width / 2, low, high)
        return Histogram(centers, counts[first:last].astype(np.float64), width, low, high)

    @staticmethod
    def of_data(x: Any) -> "Histogram":
        """The histogram of an array, computed in NumPy."""
        return Histogram.of(measure(NUMPY_STATS, np.asarray(x)))
