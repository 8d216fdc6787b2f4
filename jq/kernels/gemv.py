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
from jq.kernels import dot
from jq.kernels.builder import Builder, Index, Output, Tile, dispatch, vec
from jq.kernels.epilogue import Step, check
from jq.kernels.finish import Epilogue, operand_types
from jq.kernels.kernel import Kernel
from jq.kernels.tensor import TensorType

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
            _Panel(self, b, tensors, tiles[0], ids[0], column(b, ids)).emit()

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


class _Panel:
    """The body of one workgroup: all rows of one panel of columns."""

    def __init__(
        self,
        gemv: Gemv,
        b: Builder,
        tensors: Sequence[ir.Value],
        tile: Tile,
        panel: Index,
        column: Index,
    ) -> None:
        self.gemv, self.b, self.isa, self.tile, self.panel = gemv, b, gemv.target, tile, panel
        self.codes, self.row_scale, self.weights, self.scale, *rest = tensors
        self.minimum = rest.pop(0) if gemv.minimum else None
        self.epilogue = Epilogue(
            b,
            gemv.epilogue,
            rest,
            lanes=self.isa.lanes,
            vectors=gemv.vectors,
            column=column,
            n=gemv.n,
        )
        # Codes stay unsigned in a product that wants them so; elsewhere the offset is taken out.
        self.unsigned = self.isa.dot.lhs_unsigned
        correction = gemv.offset if self.unsigned else 0
        self.factor = 1 if gemv.minimum else correction

    def emit(self) -> None:
        gemv, count = self.gemv, self.gemv.rows
        full, rest = divmod(gemv.m, count)
        with self.b.loop(0, full * count, count, writes=[self.tile]) as loop:
            self._rows([self.b.offset(loop.index, i) for i in range(count)])
        if rest:
            self._rows([full * count + i for i in range(rest)])

    def _rows(self, rows: Sequence[Index]) -> None:
        b, gemv, isa = self.b, self.gemv, self.isa
        total = [b.f32(0.0, isa.lanes)] * (len(rows) * gemv.vectors)
        whole, tail = divmod(gemv.k, gemv.block)
        if whole:
            with b.loop(0, whole, carry=total) as loop:
                loop.carried = self._block(loop.carried, rows, loop.index, gemv.block)
            total = loop.carried
        if tail:
            total = self._block(total, rows, whole, tail)
        for i, row in enumerate(rows):
            ready = self.epilogue.row([row])
            for j in range(gemv.vectors):
                value = total[i * gemv.vectors + j]
                if not gemv.per_block:
                    value = b.mul(value, self.epilogue.scalar(self.row_scale, [row], "f32"))
                value = self.epilogue.apply(value, [row], j, ready)
                b.store(value, self.tile, [row, j * isa.lanes], gemv.n)

    def _block(
        self, total: Sequence[ir.Value], rows: Sequence[Index], block: Index, size: int
    ) -> list[ir.Value]:
        """The sums after one block of `size` codes along K."""
        b, gemv, isa = self.b, self.gemv, self.isa
        zero = b.i32(0, isa.lanes)
        acc, extra = [zero] * len(total), [zero] * len(rows)
        group, per_step = isa.dot.group, 8 // gemv.bits
        for first in range(0, size, group):
            step, half = divmod(first // group, per_step)
            if half == 0:
                weights = [self._weights(block, step, j) for j in range(gemv.vectors)]
            at = b.offset(b.scaled(block, gemv.block), first)
            for i, row in enumerate(rows):
                x = dot.codes(b, isa, self.codes, [row, at], False, min(group, size - first))
                if self.factor:
                    extra[i] = dot.dot(b, isa, extra[i], dot.splat(b, isa, self.factor), x)
                for j in range(gemv.vectors):
                    to = i * gemv.vectors + j
                    acc[to] = dot.dot(b, isa, acc[to], weights[j][half], x)
        return self._scaled(total, acc, extra, rows, block)

    def _weights(self, block: Index, step: int, j: int) -> list[ir.Value]:
        """The groups that one load holds, as the left operand of a product."""
        b, isa, gemv = self.b, self.isa, self.gemv
        size = isa.lanes * isa.dot.group
        at = [self.panel, block, (step * gemv.vectors + j) * size]
        stored = b.load(self.weights, at, vec(size, "i8"))
        if gemv.bits == 8:
            return [self._operand(stored)]
        mask = b.constant(stored.type, 15)
        shifted = b.shift_right(b.bitcast(stored, vec(size // 4, "i32")), 4)
        halves = [stored, b.bitcast(shifted, vec(size, "i8"))]
        return [self._operand(b.bit_and(half, mask)) for half in halves]

    def _operand(self, codes: ir.Value) -> ir.Value:
        b, element = self.b, self.isa.dot.element
        if self.gemv.offset and not self.unsigned:
            codes = b.sub(codes, b.constant(codes.type, self.gemv.offset))
        return codes if element == "i8" else b.extend(codes, element)

    def _scaled(
        self,
        total: Sequence[ir.Value],
        acc: Sequence[ir.Value],
        extra: Sequence[ir.Value],
        rows: Sequence[Index],
        block: Index,
    ) -> list[ir.Value]:
        b, gemv = self.b, self.gemv
        scales = self._by_block(self.scale, block)
        minima = self._by_block(self.minimum, block) if self.minimum is not None else []
        out = []
        for i, row in enumerate(rows):
            x_scale = (
                self.epilogue.scalar(self.row_scale, [row, block], "f32")
                if gemv.per_block
                else None
            )
            if minima:
                codes_sum = b.to_f32(extra[i])
                codes_sum = b.mul(codes_sum, x_scale) if x_scale is not None else codes_sum
            for j in range(gemv.vectors):
                to = i * gemv.vectors + j
                value = acc[to] if minima or not self.factor else b.sub(acc[to], extra[i])
                factor = b.mul(scales[j], x_scale) if x_scale is not None else scales[j]
                sum_ = b.fma(b.to_f32(value), factor, total[to])
                out.append(b.fma(codes_sum, minima[j], sum_) if minima else sum_)
        return out

    def _x_scale(self, row: Index, block: Index) -> ir.Value | None:
        if not self.gemv.per_block:
            return None
        return self.epilogue.scalar(self.row_scale, [row, block], "f32")

    def _by_block(self, source: ir.Value, block: Index) -> list[ir.Value]:
        b, lanes = self.b, self.isa.lanes
        kind = vec(lanes, self.gemv.scale)
        return [
            b.widen(b.load(source, [self.panel, block, j * lanes], kind))
            for j in range(self.gemv.vectors)
        ]
