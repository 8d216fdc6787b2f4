"""Common base of integer products: corrections for zero points, and what follows the sums."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jq.base.errors import InternalError
from jq.kernels.epilogue.steps import Step, applied, check
from jq.kernels.kernel import ByColumn, MatrixProduct
from jq.kernels.machine.tile_cut import TiledCut
from jq.kernels.machine.tiling import Tiling
from jq.kernels.schedule.layout import Frame, Sequences
from jq.kernels.tensor import Array, TensorType


@dataclass(frozen=True, kw_only=True)
class IntegerProduct(ByColumn):
    """`epilogue(sum_k (codes[m, k] - row_zero[m]) * (weight[k, n] - column_zero[n]) + bias[n])`.

    Attributes:
        unsigned: the codes are stored in their unsigned view (`q + 128`); weights with zero points
            take them so only where the product reads them so.
        row_zero: codes have zero points that are known at run time, one a row (or a sample).
        epilogue: steps from i32; none stores the accumulator.
    """

    unsigned: bool = False
    row_zero: bool = False
    epilogue: tuple[Step, ...] = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The shape of the sums: rows, columns."""

    @property
    def column_zero(self) -> bool:
        """Weights have zero points, which the sum of a row's codes is multiplied by."""
        return False

    def check_views(self) -> None:
        """Refuses codes whose sum a kernel with zero points of weights does not find."""
        if self.column_zero and self.unsigned and not self.target.dot.lhs_unsigned:
            raise InternalError(f"{self.name} reads the codes of {self.label} as signed ones")

    @property
    def lead(self) -> tuple[int, ...]:
        """Axes of a batch, in front of every operand and result."""
        return ()

    @property
    def frame(self) -> Frame | None:
        """The frame around the images that have rows for pixels."""
        return None

    @property
    def on_tiles(self) -> bool:
        return False

    @property
    def swapped(self) -> bool:
        """The weights are the product's left operand."""
        return False

    @property
    def code_offset(self) -> int:
        """Offset of a code: the product reads code + offset; tiles take codes as stored."""
        as_stored = self.on_tiles or self.swapped
        return 128 if (self.unsigned if as_stored else self.target.dot.lhs_unsigned) else 0

    @property
    def weight_offset(self) -> int:
        """Offset of a weight: the product reads weight + offset."""
        return 128 if self.swapped else 0

    def start_types(self, rows: int) -> list[TensorType]:
        """The operands after the weights that sums start from, for so many zero points."""
        column = TensorType((self.columns,), "i32")
        corrections = [TensorType((rows,), "i32"), column] * self.row_zero
        return [column, *corrections, *([column] * self.column_zero)]

    @property
    def results(self) -> tuple[TensorType, ...]:
        rows, columns = self.shape
        rows = self.frame.rows(rows) if self.frame else rows
        return (TensorType((*self.lead, rows, columns), check(self.epilogue)),)

    def starts(
        self, weight: Array, bias: Array | None, zero_point: int, column_zero: Array | None = None
    ) -> dict[str, Array]:
        """The constants among `start_types`, of an int8 weight [K, N]."""
        colsum = weight.sum(0, dtype=np.int32)
        zeros = np.zeros_like(colsum) if column_zero is None else column_zero
        real = colsum - np.int32(len(weight)) * zeros
        init = -np.int32(zero_point) * real - np.int32(self.code_offset) * colsum
        if self.unsigned:  # the sum of a row has the offset too
            init += np.int32(128 * len(weight)) * zeros
        parts = {"init": init if bias is None else init + bias.astype(np.int32)}
        if self.row_zero:
            parts["colsum"] = real
        if self.column_zero:
            parts["column_zero"] = zeros + np.int32(self.weight_offset)
        return {name: self.pad_columns(values) for name, values in parts.items()}

    def finished(
        self, acc: Array, bias: Array | None, operands: Sequence[Sequence[Array]]
    ) -> Array:
        """In NumPy, the result from sums; `operands` holds each step's in broadcastable form."""
        y: Array = (acc + (0 if bias is None else bias)).astype(np.int32).reshape(self.shape)
        y = applied(self.epilogue, y, operands)
        return self.frame.reference(y) if self.frame else y


class PanelProduct(IntegerProduct):
    """A product by panels of columns, on vectors or on matrix tiles."""

    @property
    @abstractmethod
    def span(self) -> int:
        """Columns that a row of panels covers."""

    @property
    def sequences(self) -> Sequences | None:
        """The sequences that tell which rows are wanted; None for all."""
        return None

    @property
    def length(self) -> int:
        """Rows that are cut into blocks together: those of a sequence, or all."""
        return self.sequences.length if self.sequences else self.shape[0]

    @property
    @abstractmethod
    def tiling(self) -> Tiling:
        """The cut for vectors."""

    @property
    @abstractmethod
    def tiles(self) -> TiledCut:
        """The cut for matrix tiles."""


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
