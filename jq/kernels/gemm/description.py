"""Matrix product with its epilogue: `[M, K] i8 x [K, N] i8 -> [M, N]` f32, i8 or i32, or of floats.

Weights are packed `[panels, K/group, vectors * lanes * group]`: a workgroup reads its panel as one
stream. `init` holds the int32 bias and every constant correction. 2 * M * N * K operations.

Sums of floats are f32, in an order that depends on the instruction set: within K 2^-24 of the sum
of magnitudes. Numbers below 2^-126 may count as 0, before and after a sum."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from jq.base.errors import InternalError
from jq.kernels.epilogue.step import COLUMN, ELEMENT, ROW, check, operand_types
from jq.kernels.gemm.product import MatrixPanels, PackedProduct
from jq.kernels.gemm.two_digits import TwoDigits
from jq.kernels.machine import Tiling, tiling
from jq.kernels.machine.tile_cut import TiledCut, pack_weight, unpack_weight
from jq.kernels.schedule.layout import Batch, Sequences
from jq.kernels.tensor import Array, TensorType, cut_last, join_last

TILED_ROWS, TILED_GROUPS = 5, 12
STREAM_ROWS, STREAM_VECTORS = 2, 2  # rows that may have streams; vectors of each


@dataclass(frozen=True)
class RegisterTile:
    """A given register tile, in place of what `tiling.choose` takes."""

    kind: ClassVar[str] = "register_tile"
    rows: int
    vectors: int


@dataclass(frozen=True)
class Streams:
    """A panel's weights are read from so many places at once: one row or two wait for memory, and
    a processor fetches several streams ahead faster than one."""

    kind: ClassVar[str] = "streams"
    count: int


class Gemm(MatrixPanels, PackedProduct):
    """A product on vectors or on matrix tiles.

    Operands, in order:
        codes: i8 [M, K]; with `unsigned` their unsigned view (`q + 128`); or floats.
        weights, init (not of floats): what `pack` made.
        row_zero: i32 [M], and colsum i32 [N'], if `row_zero`.
        column_zero: i32 [N'] (`pack`), if `column_zero`.
        what the epilogue's steps name, step by step; [N] operands have N' elements.
        counts: i32 [M / length], if the rows are of `Sequences`.
    N' is N, or the lanes of a vector when N is smaller (`pad_columns` fills up).

    Attributes:
        column_zero: weights have zero points.
        cut: a `RegisterTile`, or the `Streams` of weights; None: the cheapest one."""

    column_zero: bool = False
    cut: RegisterTile | Streams | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        width = STREAM_VECTORS * self.streams * self.target.lanes
        if self.streams > 1 and (self.m > STREAM_ROWS or self.n < width or self.sequences):
            raise InternalError(f"no {self.streams} streams of {self.label}")
        if self.on_tiles and self.sequences:
            raise InternalError(f"all rows of {self.label} are computed, side by side")
        if self.floats and (self.sequences or self.streams > 1):
            raise InternalError(f"all rows of floats of {self.label} are computed, side by side")

    @property
    def label(self) -> str:
        return (f"{self.batch}x" if self.batch > 1 else "") + super().label

    @property
    def batch(self) -> int:
        return self.rows.count if isinstance(self.rows, Batch) else 1

    @property
    def streams(self) -> int:
        return self.cut.count if isinstance(self.cut, Streams) else 1

    @property
    def on_tiles(self) -> bool:
        """Matrix tiles pay from some rows on (fewer wait for weights), and where K fills them."""
        fills = self.k >= TILED_GROUPS * self.tiles.group
        return self.target.tiles and self.m >= TILED_ROWS and fills

    @cached_property
    def tiles(self) -> TiledCut:
        return TiledCut(self.m, self.k, self.n, 2 if self.floats else 4)

    @property
    def in_place(self) -> bool:
        """True if matrix tiles are read where the rows are (floats: once they are rounded)."""
        return self.on_tiles and self.k % self.tiles.depth == 0 and not self.column_zero

    @property
    def lead(self) -> tuple[int, ...]:
        return (self.batch,) if self.batch > 1 else ()

    @property
    def swapped(self) -> bool:
        """Signed codes where the product reads its left operand as u8: the weights go there, and
        what their offset of 128 adds is 128 times the sum of a row's codes."""
        return self.target.dot.lhs_unsigned and not (self.unsigned or self.on_tiles)

    @cached_property
    def tiling(self) -> Tiling:
        m = self.length
        if isinstance(self.cut, RegisterTile):
            return tiling.cut(self.target, self.cut.rows, self.cut.vectors, m, self.k, self.n)
        if self.streams > 1:
            vectors = STREAM_VECTORS * self.streams
            return tiling.cut(self.target, self.m, vectors, self.m, self.k, self.n)
        size = 1 if check(self.epilogue, self.sums) == "i8" else 4
        return tiling.choose(self.target, m, self.k, self.n, size)

    @property
    def groups(self) -> int:
        return math.ceil(self.k / self.target.dot.group)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        size = self.tiling.vectors * self.target.lanes * self.target.dot.group
        packed = TensorType(self._weights_shape(size), self.stored)
        kinds = [
            *[TensorType((self.m, self.k), self.read)] * self.code_operands,
            TensorType(self.tiles.weights_type, "i32") if self.on_tiles else packed,
            *self.start_types(self.m),
            *operand_types(self.epilogue, (self.m, self.n), self.columns),
        ]
        return (*(TensorType((*self.lead, *t.shape), t.element) for t in kinds), *self.counts)

    @property
    def accesses(self) -> tuple[str, ...]:
        """The access to each operand: `codes`, `weights`, or as operands of a step are read."""
        corrections = [ROW, COLUMN] * self.row_zero + [COLUMN] * self.column_zero
        steps = [how for step in self.epilogue for how, _ in step.operands]
        return (
            *["codes"] * self.code_operands,
            "weights",
            *([] if self.floats else [COLUMN]),
            *corrections,
            *steps,
        )

    @property
    def row_operands(self) -> tuple[int, ...]:
        return tuple(i for i, how in enumerate(self.accesses) if how in ("codes", ROW, ELEMENT))

    def by_sequences(self, sequences: Sequences) -> "Gemm | None":
        if self.rows or self.on_tiles or self.streams > 1 or self.floats:
            return None
        vectors = self.tiling.vectors  # as the weights lie
        rows = tiling.even_rows(self.target, vectors, sequences.length)
        return replace(self, cut=RegisterTile(rows, vectors), rows=sequences)

    def pack(
        self,
        weight: Array,
        bias: Array | None = None,
        zero_point: int = 0,
        column_zero: Array | None = None,
    ) -> dict[str, Array]:
        """The constant operands, as of every `PackedProduct`; arrays of a batch have its axis."""
        pack = super().pack
        if self.batch == 1:
            return pack(weight, bias, zero_point, column_zero)
        given = ([None] * self.batch if v is None else v for v in (bias, column_zero))
        one = [pack(w, b, zero_point, z) for w, b, z in zip(weight, *given, strict=True)]
        return {name: np.stack([p[name] for p in one]) for name in one[0]}

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return self.k, self.n

    def _packed(self, weight: Array) -> Array:
        """[K, N] -> [panels, K/group, vectors * lanes * group]; K and a narrow N end in zeros."""
        if not self.floats and weight.dtype != np.int8:
            raise InternalError(f"a weight of {self.label} has {weight.dtype}")
        if self.on_tiles:
            return pack_weight(self.tiles, weight)
        lanes, group, cut = self.target.lanes, self.target.dot.group, self.tiling
        width = cut.vectors * lanes
        padded = np.pad(
            weight, ((0, self.groups * group - self.k), (0, max(0, width - self.n)))
        ).reshape(self.groups, group, -1)
        if self.swapped:
            padded = padded ^ np.int8(-128)
        stacked = cut_last(padded, cut.panels, width).transpose(0, 1, 3, 2)
        if self.streams > 1:
            shape = (cut.panels, self.groups, self.streams, -1)
            stacked = stacked.reshape(shape).transpose(2, 0, 1, 3)
        return np.ascontiguousarray(stacked).reshape(self._weights_shape(width * group))

    def _weights_shape(self, size: int) -> tuple[int, ...]:
        """A panel's step of `size` bytes; cut among the streams, whose axis is the first then."""
        one = (self.tiling.panels, self.groups, size // self.streams)
        return (self.streams, *one) if self.streams > 1 else one

    def unpack(self, weights: Array) -> Array:
        """The [K, N] weight that `pack` took (bf16 as i16); not of a batch."""
        if self.on_tiles:
            return unpack_weight(self.tiles, weights)
        lanes, group, cut = self.target.lanes, self.target.dot.group, self.tiling
        width = cut.vectors * lanes
        if self.streams > 1:
            weights = weights.transpose(1, 2, 0, 3)
        stacked = weights.reshape(cut.panels, self.groups, width, group).transpose(0, 1, 3, 2)
        rows = self.groups * group
        panels = [values.reshape(rows, width) for values in stacked]
        columns = join_last(panels, max(self.n, width))
        kept = columns[: self.k, : self.n]
        return np.ascontiguousarray(kept ^ np.int8(-128) if self.swapped else kept)


class DigitGemm(TwoDigits, Gemm):
    """A `Gemm` of 16-bit codes."""
