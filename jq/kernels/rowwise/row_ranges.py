"""The smallest and the largest number of every row: what a range of all of a tensor is made of.

    for block of rows in workgroups:
      for row in block:
        smallest, largest, NaN where there is one      (one pass, 4 vectors at a time)

3 operations an element; bound by memory.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jq.kernels.rowwise.quantize_rows import RowKernel
from jq.kernels.tensor import Array, TensorType


@dataclass(frozen=True, kw_only=True)
class RowRanges(RowKernel):
    """f32 [M, K] -> f32 [M], f32 [M]: NaN where the row holds one."""

    family: ClassVar[str] = "row_ranges"

    @property
    def operands(self) -> tuple[TensorType, ...]:
        return (TensorType((self.m, self.k), "f32"),)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType((self.m,), "f32"),) * 2

    def reference(self, x: Array) -> tuple[Array, Array]:
        return np.min(x, axis=1), np.max(x, axis=1)
