"""Packs the right operand of a `Gemm` at run time: a product of two activations, as in attention.

    for panel, sample in workgroups:
      for vector of columns, group along K:
        `group` rows interleaved, or a square of words transposed   -> weights
        sum += ones * codes                                         -> init, colsum

1 load, 1 shuffle and 1 store for a vector of codes; 2 K N operations for the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jq.errors import InternalError
from jq.kernels.gemm.description import Gemm
from jq.kernels.kernel import Kernel
from jq.kernels.tensor import TensorType


@dataclass(frozen=True, kw_only=True)
class PackOperand(Kernel):
    """i8 [(B,) K, N], or [(B,) N, K], -> the operands `weights`, `init` (, `colsum`) of `gemm`.

    Attributes:
        gemm: the product; its `isa` is this kernel's.
        transposed: the codes are [N, K].
        zero_point: of the left operand, where it is static.
        column_zero: of these codes; `gemm.column_zero` if it is not 0, and then the product's
            operand of that name is `column_zero + gemm.weight_offset` for every column.
    """

    family: ClassVar[str] = "pack_operand"

    gemm: Gemm
    transposed: bool = False
    zero_point: int = 0
    column_zero: int = 0

    def __post_init__(self) -> None:
        if self.gemm.isa != self.isa:
            raise InternalError(f"packing for {self.isa}, product on {self.gemm.isa}")
        if self.column_zero and not self.gemm.column_zero:
            raise InternalError("the product has no column_zero")

    @property
    def label(self) -> str:
        return self.gemm.label

    @property
    def operations(self) -> int:
        return 2 * self.gemm.batch * self.gemm.k * self.gemm.n

    @property
    def operands(self) -> tuple[TensorType, ...]:
        k, n = self.gemm.k, self.gemm.n
        return (TensorType((*self.gemm.lead, *((n, k) if self.transposed else (k, n))), "i8"),)

    @property
    def results(self) -> tuple[TensorType, ...]:
        _, weights, init, *rest = self.gemm.operands
        return (weights, init, *(rest[1:2] if self.gemm.row_zero else []))

    @property
    def vectors(self) -> int:
        """Vectors of a panel."""
        return self.gemm.tiles.vectors if self.gemm.on_tiles else self.gemm.tiling.vectors

    @property
    def panels(self) -> int:
        cut = self.gemm.tiles
        return len(cut.starts) if self.gemm.on_tiles else self.gemm.tiling.panels
