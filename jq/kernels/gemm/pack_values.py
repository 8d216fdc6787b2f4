"""Codes that are found at run time as the weights of a `Gemm`: packed, with their sums.

for each product of the batch in workgroups:
  for panel, for vector of columns in it:
    for group of codes along K:
      packed group <- `group` rows, or the words of as many rows, transposed
      sums of the columns += the group
    init <- base - zero * sums"""

from jq.base.errors import InternalError
from jq.kernels.gemm.description import Gemm
from jq.kernels.kernel import Kernel
from jq.kernels.tensor import TensorType


class PackValues(Kernel):
    """i8 [outer, K, inner, N] -> the operands `weights` and `init` of the product.

    The batch is outer * inner products. Operands: codes, and i32 [2]: the zero point of the
    product's rows, and what all sums start from.

    Attributes:
        transposed: codes are i8 [outer, N, inner, K]."""

    gemm: Gemm
    outer: int
    inner: int
    transposed: bool = False

    def __post_init__(self) -> None:
        gemm = self.gemm
        if gemm.batch != self.outer * self.inner or gemm.unsigned or gemm.streams > 1:
            raise InternalError(f"{gemm.label} does not read packed values")

    @property
    def label(self) -> str:
        return self.gemm.label

    @property
    def operands(self) -> tuple[TensorType, ...]:
        rows, columns = (self.gemm.n, self.gemm.k)[:: 1 if self.transposed else -1]
        shape = (self.outer, rows, self.inner, columns)
        return TensorType(shape, "i8"), TensorType((2,), "i32")

    @property
    def results(self) -> tuple[TensorType, ...]:
        return self.gemm.operands[1:3]
