"""LayerNorm and RMSNorm over rows, with the quantization of the result in the same pass.

    for block of rows in workgroups:
      for row in block:            (two at a time, where there are registers)
        mean                       sum(x) / K                      (LayerNorm)
        variance                   sum((x - mean)^2) / K
        y = (x - mean) / sqrt(variance + eps) * gamma + beta       -> stored, range
        codes of y                 (y is computed again: the same operations, the same bits)

About 12 operations an element, bound by memory. Every sum runs in 4 chains of vectors that are
joined in a fixed order. With u = 2^-24 the relative error of a sum of squares is below
(K / 64 + 8) u; the error of y is that, times 1 + |mean| / sqrt(variance), and a few u.
"""

from dataclasses import dataclass
from typing import ClassVar

from jq.base.errors import InternalError
from jq.kernels.machine.isa import CHAINS
from jq.kernels.rowwise.quantization import RowQuantization
from jq.kernels.rowwise.quantize_rows import RowKernel
from jq.kernels.tensor import TensorType

MANY_REGISTERS = 32


@dataclass(frozen=True, kw_only=True)
class Normalize(RowKernel):
    """f32 [M, K] (, gamma, beta, factors [K]) (, scale, zero point) -> f32, codes, or both.

    Attributes:
        epsilon: added to the variance.
        center: subtract the mean (LayerNorm); else RMSNorm.
        gamma, beta: which of the two operands there are.
        keep: the normalized rows are a result.
        scheme: their codes are results, as `QuantizeRows` has them; None: they are not.
    """

    family: ClassVar[str] = "normalize"

    epsilon: float = 1e-5
    center: bool = True
    gamma: bool = True
    beta: bool = True
    keep: bool = True
    scheme: RowQuantization | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.keep and self.scheme is None:
            raise InternalError("a normalization without a result")
        if self.factors and self.scheme is None:
            raise InternalError("factors of codes, and no codes")

    @property
    def operands(self) -> tuple[TensorType, ...]:
        columns = [TensorType((self.k,), "f32")] * (self.gamma + self.beta + self.factors)
        given = self.scheme.operands if self.scheme else []
        counts = [self.sequences.operand(self.m)] if self.sequences else []
        return (TensorType((self.m, self.k), "f32"), *columns, *given, *counts)

    @property
    def results(self) -> tuple[TensorType, ...]:
        kinds = [TensorType((self.m, self.k), "f32")] if self.keep else []
        return (*kinds, *(self.scheme.results(self.m, self.k) if self.scheme else []))

    @property
    def together(self) -> int:
        """Rows whose chains of dependent operations overlap."""
        many = self.target.registers >= MANY_REGISTERS and self.target.lanes >= CHAINS
        return 2 if many else 1
