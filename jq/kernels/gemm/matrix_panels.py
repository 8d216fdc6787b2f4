"""Common base of products of a matrix by panels of columns: their rows, and their results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jq.base.errors import InternalError
from jq.kernels.epilogue.steps import check
from jq.kernels.gemm.product import PanelProduct
from jq.kernels.kernel import MatrixProduct
from jq.kernels.schedule.frame import Frame
from jq.kernels.schedule.sequences import Sequences
from jq.kernels.tensor import Array, TensorType


@dataclass(frozen=True)
class Batch:
    """So many products: every operand and result has a leading axis, scalars and vectors too."""

    kind: ClassVar[str] = "batch"
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InternalError("a batch of no products")


@dataclass(frozen=True, kw_only=True)
class MatrixPanels(MatrixProduct, PanelProduct):
    """An `IntegerProduct` of a matrix [M, K].

    Attributes:
        m, k, n: the shape.
        rows: what the rows are, where they are not those of one matrix: of a `Batch` of products,
            of `Sequences` some of which are left out, or the pixels of images in a `Frame`
            ([M'] rows of the result).
    """

    rows: Batch | Sequences | Frame | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_views()
        check(self.epilogue)
        if self.frame:
            self.frame.rows(self.m)

    @property
    def shape(self) -> tuple[int, int]:
        return self.m, self.n

    @property
    def span(self) -> int:
        return self.n

    @property
    def sequences(self) -> Sequences | None:
        return self.rows if isinstance(self.rows, Sequences) else None

    @property
    def frame(self) -> Frame | None:
        return self.rows if isinstance(self.rows, Frame) else None

    @property
    def counts(self) -> list[TensorType]:
        """The last operand, of sequences alone: how many rows of each are wanted."""
        return [self.sequences.operand(self.m)] if self.sequences else []

    def reference(
        self,
        codes: Array,
        weight: Array,
        bias: Array | None = None,
        zero: Array | int = 0,
        operands: Sequence[Sequence[Array]] = (),
        column_zero: Array | int = 0,
    ) -> Array:
        """The same in NumPy: signed codes [M, K], weight [K, N], zero points per row or one.

        `operands` holds each step's arrays in broadcastable form.
        """
        q = codes.astype(np.int64) - np.asarray(zero, np.int64).reshape(-1, 1)
        acc = q @ (weight.astype(np.int64) - column_zero)
        return self.finished(acc, bias, operands)
