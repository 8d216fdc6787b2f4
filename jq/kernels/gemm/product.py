"""Common base of products: corrections for zero points, and what follows the sums."""

from abc import abstractmethod

import ml_dtypes
import numpy as np

from jq.base.errors import InternalError
from jq.kernels.epilogue.step import Step, check
from jq.kernels.kernel import ByColumn, MatrixProduct
from jq.kernels.machine import Isa, TiledCut, Tiling
from jq.kernels.schedule.layout import Batch, Sequences
from jq.kernels.tensor import Array, TensorType


class Product(ByColumn, shared=True):
    """`epilogue(sum_k (codes[m, k] - row_zero[m]) * (weight[k, n] - column_zero[n]) + bias[n])`.

    Attributes:
        element: what is multiplied: `i8`, codes, whose sums are i32; or floats of `bf16` or `f32`.
            Their other operand is f32, rounded to that type (`bf16_bits`: stored as bf16, in i16),
            their sums are f32, without zero points and bias.
        unsigned: the codes are stored in their unsigned view (`q + 128`); weights with zero points
            take them so only where the product reads them so.
        row_zero: codes have zero points that are known at run time, one a row (or a sample).
        epilogue: steps from i32 (f32); none stores the accumulator."""

    element: str = "i8"
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

    @property
    def target(self) -> Isa:
        return super().target.for_element(self.element.partition("_")[0])

    @property
    def floats(self) -> bool:
        return self.element != "i8"

    @property
    def sums(self) -> str:
        """Element type of the accumulator."""
        return self.target.dot.result

    @property
    def read(self) -> str:
        """Element type of the operand that is not the weight."""
        return {"i8": "i8", "bf16_bits": "i16"}.get(self.element, "f32")

    @property
    def halves(self) -> bool:
        """Operands are numbers of bf16."""
        return self.element.startswith("bf16")

    @property
    def takes_bits(self) -> bool:
        """Its operand may be stored as bf16 without costing a step of the inner loop."""
        return self.halves and (self.on_tiles or self.target.dot.element == "bf16")

    @property
    def stored(self) -> str:
        """Element type of weights in memory."""
        return "i16" if self.halves else self.element

    def check_views(self) -> None:
        """Refuses codes whose sum a kernel with zero points of weights does not find."""
        if self.floats and (self.unsigned or self.row_zero or self.column_zero):
            raise InternalError(f"floats of {self.label} have no zero points")
        if self.column_zero and self.unsigned and not self.target.dot.lhs_unsigned:
            raise InternalError(f"{self.name} reads the codes of {self.label} as signed ones")

    @property
    def lead(self) -> tuple[int, ...]:
        """Axes of a batch, in front of every operand and result."""
        return ()

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

    def start_types(self, rows: int = 1) -> list[TensorType]:
        """The operands after the weights that sums start from, for so many zero points."""
        if self.floats:
            return []
        column = TensorType((self.columns,), "i32")
        corrections = [TensorType((rows,), "i32"), column] * self.row_zero
        return [column, *corrections, *([column] * self.column_zero)]

    @property
    def results(self) -> tuple[TensorType, ...]:
        rows, columns = self.shape
        return (TensorType((*self.lead, rows, columns), check(self.epilogue, self.sums)),)

    def bits(self, weight: Array) -> Array:
        """A weight as it is stored; one of bfloat16 may come so."""
        bits = weight.view(np.int16) if weight.dtype == ml_dtypes.bfloat16 else weight
        if self.floats and bits.dtype != (np.float32 if self.element == "f32" else np.int16):
            raise InternalError(f"{weight.dtype} is no weight of {self.label}")
        return bits

    def starts(
        self, weight: Array, bias: Array | None, zero_point: int, column_zero: Array | None = None
    ) -> dict[str, Array]:
        """The constants among `start_types`, of an int8 weight [K, N]."""
        if self.floats:
            return {}
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


class PackedProduct(Product, shared=True):
    """One whose weights are packed as the body reads them, from the weight alone."""

    @property
    @abstractmethod
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the weight that `pack` takes, columns last."""

    def pack(
        self,
        weight: Array,
        bias: Array | None = None,
        zero_point: int = 0,
        column_zero: Array | None = None,
    ) -> dict[str, Array]:
        """The constant operands (`weights`, `init`, and if needed `colsum`, `column_zero`) of an
        int8 weight of `weight_shape`; of floats the `weights` alone. `bias` and `column_zero` are
        i32 by column, `zero_point` that of the codes (signed) where it is known."""
        if weight.shape != self.weight_shape:
            raise InternalError(f"{weight.shape} is not the weight of {self.label}")
        matrix = weight.reshape(-1, weight.shape[-1])
        starts = self.starts(matrix, bias, zero_point, column_zero)
        return {"weights": self._packed(self.bits(weight)), **starts}

    @abstractmethod
    def _packed(self, weight: Array) -> Array:
        """The weight as the body reads it."""


class PanelProduct(Product, shared=True):
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


class MatrixPanels(MatrixProduct, PanelProduct, shared=True):
    """A `Product` of a matrix [M, K].

    Attributes:
        m, k, n: the shape.
        rows: what the rows are, where they are not those of one matrix: of a `Batch` of products,
            or of `Sequences` some of which are left out."""

    rows: Batch | Sequences | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_views()
        check(self.epilogue, self.sums)

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
    def counts(self) -> list[TensorType]:
        """The last operand, of sequences alone: how many rows of each are wanted."""
        return [self.sequences.operand(self.m)] if self.sequences else []
