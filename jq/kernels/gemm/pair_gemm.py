"""Integer products of matrices with 8-bit weights as bytes: the result is that of `Gemm`."""

from dataclasses import dataclass
from typing import ClassVar

from jq.kernels.epilogue.steps import operand_types
from jq.kernels.gemm.matrix_panels import MatrixPanels
from jq.kernels.gemm.pair_product import PairProduct
from jq.kernels.schedule.frame import Frame
from jq.kernels.schedule.sequences import Sequences
from jq.kernels.tensor import TensorType


@dataclass(frozen=True, kw_only=True)
class PairGemm(MatrixPanels, PairProduct):
    """A `PairProduct` of a matrix.

    Operands: codes i8 [M, K]; what `pack` made: weights, source, plan, init, and (`row_zero`) zero
    points i32 [M] and colsum; what the epilogue's steps name; counts, if the rows are of sequences.

    Attributes:
        rows: of `Sequences` some of which are left out, or the pixels of images in a `Frame`.
    """

    family: ClassVar[str] = "pair_gemm"

    rows: Sequences | Frame | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_pairs()

    @property
    def runs(self) -> tuple[int, int]:
        return 1, 1

    @property
    def run(self) -> int:
        return self.k

    @property
    def operands(self) -> tuple[TensorType, ...]:
        _, *corrections = self.start_types(self.m)
        return (
            TensorType((self.m, self.k), "i8"),
            *self.packed_types,
            *corrections,
            *operand_types(self.epilogue, (self.m, self.n), self.columns),
            *self.counts,
        )
