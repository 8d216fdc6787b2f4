"""Few rows times block-scaled weights of 4 or 8 bits, each weight read once.

    y[m, n] = sum_b x_scale[m, b] * (scale[b, n] * sum_k x[m, k] * w[k, n]
                                     + minimum[b, n] * sum_k x[m, k])

k runs over block b. Weights are stored unsigned (`w + offset`) where the product reads its left
operand so; what the offset adds is a product of the same codes with a constant.

    for panel in workgroups:             # vectors * lanes columns
      for tile of rows:
        for block of K:
          acc[rows][vectors], extra[rows] = 0
          for pair of groups: one load of 4-bit codes, `and 15`, `>> 4`; rows * vectors * 2 products
          y = fma(f32(acc - extra), scale * x_scale, y)
        epilogue, store

2 M N K operations; bound by reading N K bits / 8 of weights. The sum over blocks is in f32, in
order, one rounding a block: its error is below (K / block + 1) 2^-24 of the sum of magnitudes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from iree.compiler import ir

from jq.errors import InternalError
from jq.kernels.builder import Builder, Tile
from jq.kernels.dispatch import Output, dispatch
from jq.kernels.epilogue import Step, check
from jq.kernels.finish import operand_types
from jq.kernels.gemv_body import RowPanel
from jq.kernels.kernel import Kernel
from jq.kernels.tensor import TensorType
from jq.kernels.values import Index

Array = np.ndarray[Any, np.dtype[Any]]
MAX_ROWS, MAX_VECTORS = 4, 4


@dataclass(frozen=True, kw_only=True)
class Gemv(Kernel):
    """i8 [M, K] x blocks [K, N] -> [M, N].

    Operands, in order:
        codes: i8 [M, K], signed.
        row scale: f32 [M], or [M, K / block] with `per_block`.
        weights, scale (, minimum): what `pack` made.
        what the epilogue's steps name; [N] operands have N' elements (`pad_columns`).

    Attributes:
        bits: 4 or 8.
        block: weights along K that share a scale; the last block may be partial.
        per_block: activations have a scale per block, not per row.
        minimum: weights are `scale * code + minimum` with codes 0..15 (4 bits only), else
            `scale * code` with signed codes.
        scale: stored type of scale and minimum, `f16` or `f32`.
        epilogue: steps from f32.
    """

    family: ClassVar[str] = "gemv"

    m: int
    k: int
    n: int
    bits: int = 4
    block: int = 32
    per_block: bool = True
    minimum: bool = False
    scale: str = "f32"
    epilogue: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        check(self.epilogue, "f32")
        if min(self.m, self.k, self.n) < 1:
            raise InternalError(f"empty product {self.label}")
        if self.bits not in (4, 8) or (self.minimum and self.bits != 4):
            raise InternalError(f"no product with {self.bits}-bit weights of this kind")
        if self.block < 8 or self.block % 8:
            raise InternalError(f"blocks of {self.block} are not a multiple of 8")

    @property
    def label(self) -> str:
        return f"{self.m}x{self.k}x{self.n}_int{self.bits}_block{self.block}"

    @property
    def operations(self) -> int:
        return 2 * self.m * self.k * self.n

    @property
    def blocks(self) -> int:
        return math.ceil(self.k / self.block)

    @property
    def rows(self) -> int:
        """Rows of a register tile."""
        return min(self.m, MAX_ROWS)

    @property
    def vectors(self) -> int:
        """Vectors of a panel: as many as registers and N allow (two accumulators for each)."""
        isa, rows = self.target, self.rows
        fits = (isa.registers - 2 * rows - 2) // (2 * rows + 1)
        return max(1, min(MAX_VECTORS, fits, self.n // isa.lanes))

    @property
    def width(self) -> int:
        return self.vectors * self.target.lanes

    @property
    def panels(self) -> int:
        return math.ceil(self.n / self.width)

    @property
    def columns(self) -> int:
        """N', the length of operands by column."""
        return max(self.n, self.target.lanes)

    @property
    def offset(self) -> int:
        """What is added to stored codes so that the product can read them."""
        if self.minimum:
            return 0
        if self.bits == 4:
            return 8
        return 128 if self.target.dot.lhs_unsigned else 0

    @property
    def operands(self) -> tuple[TensorType, ...]:
        row_scale = (self.m, self.blocks) if self.per_block else (self.m,)
        row_bytes = self.block * self.bits // 8 * self.width
        scales = TensorType((self.panels, self.blocks, self.width), self.scale)
        steps = operand_types(self.epilogue, (self.m, self.n), self.columns)
        return (
            TensorType((self.m, self.k), "i8"),
            TensorType(row_scale, "f32"),
            TensorType((self.panels, self.blocks, row_bytes), "i8"),
            *([scales] * (2 if self.minimum else 1)),
            *(TensorType(shape, what) for shape, what in steps),
        )

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType((self.m, self.n), check(self.epilogue, "f32")),)

    # Weights

    def pack(self, codes: Array, scale: Array, minimum: Array | None = None) -> dict[str, Array]:
        """The constant operands of int8 codes [K, N] (signed, or 0..15 with a minimum).

        `scale` and `minimum` are [K / block, N].
        """
        half = 1 << (self.bits - 1)
        low, high = (0, 15) if self.minimum else (-half, half - 1)
        if codes.shape != (self.k, self.n) or codes.min() < low or codes.max() > high:
            raise InternalError(f"codes do not fit {self.label}")
        stored = np.pad(codes.astype(np.int16), ((0, self.blocks * self.block - self.k), (0, 0)))
        stored = (stored + self.offset).astype(np.uint8)
        parts = {"weights": self._panels(stored), "scale": self._scales(scale)}
        if minimum is not None:
            parts["minimum"] = self._scales(minimum)
        return parts

    def pad_columns(self, values: Array) -> Array:
        """[..., N] -> [..., N']: zeros up to one vector."""
        extra = self.columns - self.n
        return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, extra)])

    def _cut(self, values: Array) -> Array:
        """[..., N] -> [panels, ..., width]; the last panel ends at N."""
        padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, max(0, self.width - self.n))])
        starts = [min(p * self.width, max(0, self.n - self.width)) for p in range(self.panels)]
        return np.stack([padded[..., s : s + self.width] for s in starts])

    def _scales(self, values: Array) -> Array:
        return np.ascontiguousarray(self._cut(values.astype(self.scale_dtype)))

    @property
    def scale_dtype(self) -> np.dtype[Any]:
        return TensorType((), self.scale).dtype

    def _panels(self, stored: Array) -> Array:
        """[K', N] bytes -> [panels, blocks, steps * width * group] bytes.

        A step is one group of every column; two groups share the bytes of 4-bit codes, the first in
        the low nibble.
        """
        group, per_step = self.target.dot.group, 8 // self.bits
        steps = self.block // (group * per_step)
        cut = self._cut(stored).reshape(
            self.panels, self.blocks, steps, per_step, group, self.width
        )
        packed = cut[:, :, :, 0]
        if per_step == 2:
            packed = packed | (cut[:, :, :, 1] << 4)
        packed = np.ascontiguousarray(packed.transpose(0, 1, 2, 4, 3)).view(np.int8)
        return packed.reshape(self.panels, self.blocks, -1)

    # Body

    def emit(self, operands: Sequence[ir.Value]) -> list[ir.Value]:
        width = min(self.n, self.width)

        def column(b: Builder, ids: Sequence[Index]) -> Index:
            return b.at_most(b.scaled(ids[0], width), self.n - width)

        def body(
            b: Builder, ids: Sequence[Index], tensors: Sequence[ir.Value], tiles: Sequence[Tile]
        ) -> None:
            RowPanel(self, b, tensors, tiles[0], ids[0], column(b, ids)).emit()

        output = Output(self.results[0], (self.m, width), lambda b, ids: [0, column(b, ids)])
        inputs = list(zip(operands, self.operands, strict=True))
        return dispatch(inputs, [output], [self.panels], body)

    # Reference

    def reference(
        self,
        x: Array,
        row_scale: Array,
        codes: Array,
        scale: Array,
        minimum: Array | None = None,
        operands: Sequence[Sequence[Array]] = (),
    ) -> Array:
        """The same in NumPy: integer sums, the rest in double precision, rounded once."""
        pad = self.blocks * self.block - self.k
        lhs = np.pad(x.astype(np.int64), ((0, 0), (0, pad))).reshape(self.m, self.blocks, -1)
        rhs = np.pad(codes.astype(np.int64), ((0, pad), (0, 0))).reshape(
            self.blocks, self.block, self.n
        )
        acc = np.einsum("mbk,bkn->mbn", lhs, rhs).astype(np.float64) * scale
        if minimum is not None:
            acc = acc + lhs.sum(2)[..., None] * minimum.astype(np.float64)
        y: Array = (acc * row_scale.reshape(self.m, -1, 1)).sum(1).astype(np.float32)
        for step, arrays in zip(self.epilogue, operands, strict=True):
            y = step.reference(y, arrays)
        return y
