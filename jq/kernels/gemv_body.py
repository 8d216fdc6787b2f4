"""The body of `Gemv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iree.compiler import ir

from jq.kernels import dot
from jq.kernels.builder import Builder, Tile
from jq.kernels.finish import Epilogue
from jq.kernels.values import Index, vec

if TYPE_CHECKING:
    from jq.kernels.gemv import Gemv


class RowPanel:
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
