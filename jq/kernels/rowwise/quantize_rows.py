"""Rows of floats to int8 codes, with a given scale or one per row from the row itself.

    for block of rows in workgroups:
      for row in block:
        range of the row             (dynamic: one pass, 4 vectors at a time)
        scale, inverse, zero point   (a division each)
        codes of the row             (a second pass, from cache)

About 4 operations an element for the range and 5 for the code; bound by memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from jq.base.errors import InternalError
from jq.kernels.kernel import Kernel
from jq.kernels.rowwise.quantization import RowQuantization
from jq.kernels.schedule.sequences import Sequences
from jq.kernels.tensor import TensorType


@dataclass(frozen=True, kw_only=True)
class RowKernel(Kernel):
    """A kernel over the rows of f32 [M, K].

    Attributes:
        factors: codes are of the rows with columns multiplied by them, f32 [K].
        sequences: which rows are left out.
    """

    m: int
    k: int
    factors: bool = False
    sequences: Sequences | None = None

    def __post_init__(self) -> None:
        if min(self.m, self.k) < 1:
            raise InternalError(f"empty matrix {self.label}")

    @property
    def label(self) -> str:
        return f"{self.m}x{self.k}"

    @property
    def row_operands(self) -> tuple[int, ...]:
        return (0,)

    def by_sequences(self, sequences: Sequences) -> RowKernel:
        return replace(self, sequences=sequences)


@dataclass(frozen=True, kw_only=True)
class QuantizeRows(RowKernel):
    """f32 [M, K] (, f32 factors [K]) -> i8 [M, K] (, f32 scale [M]) (, i32 zero point [M]).

    The static scheme has two more operands, its scale f32 [1], in [2^-70, 2^100] unless it is
    measured, and its zero point i32 [1].
    """

    family: ClassVar[str] = "quantize_rows"
    together: ClassVar[int] = 1

    scheme: RowQuantization = field(default_factory=RowQuantization)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        factors = [TensorType((self.k,), "f32")] * self.factors
        counts = [self.sequences.operand(self.m)] if self.sequences else []
        return (TensorType((self.m, self.k), "f32"), *factors, *self.scheme.operands, *counts)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return tuple(self.scheme.results(self.m, self.k))
