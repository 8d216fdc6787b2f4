"""Operations of statistics beyond `ArrayOps`: counting, rounding down, and sums.

As formats are, a statistic is written once and means the same in NumPy and in a program.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from jq.formats import NumpyOps
from jq.formats.arrays import Array, ArrayOps
from jq.ir import dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.arrays import StableHloOps
from jq.ir.build import reduce_sum


class StatOps(ArrayOps, Protocol):
    """`ArrayOps` and what statistics need."""

    def floor(self, x: Array) -> Array: ...
    def shift_down(self, a: Array, b: Array) -> Array: ...  # arithmetic: floor(a / 2^b)
    def accumulate(self, index: Array, values: Array, size: int) -> Array: ...
    def sum(self, x: Array, axes: Sequence[int]) -> Array: ...  # axes dropped
    def gram(self, x: Array, y: Array) -> Array: ...  # [g, n, a], [g, n, b] -> x^T y, [g, a, b]
    def rows(self, x: Array, index: Array) -> Array: ...  # [n, a], i32[m] -> [m, a]


class NumpyStats(NumpyOps):
    def floor(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.floor(x))

    def shift_down(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(np.right_shift(a, b))

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

    def shift_down(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return stablehlo.shift_right_arithmetic(a, b)

    def accumulate(self, index: ir.Value, values: ir.Value, size: int) -> ir.Value:
        dtype = dtype_of(values)
        scalar = tensor_type((), dtype)
        numbers = stablehlo.ScatterDimensionNumbers.get([], [0], [], [], [0], 1)
        start = self.broadcast(self.constant(np.zeros((), dtype)), (size,), ())
        op = stablehlo.ScatterOp([start.type], [start], index, [values], numbers)
        block = op.regions[0].blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            stablehlo.return_([stablehlo.add(*block.arguments)])
        return op.results[0]

    def sum(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        return reduce_sum(x, list(axes))

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
