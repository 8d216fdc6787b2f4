"""`Gemv` of many rows: codes are taken out of their planes once for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iree.compiler import ir

from jq.kernels.build.builder import Builder, Tile
from jq.kernels.build.values import Index, Values, vec
from jq.kernels.gemv.description import Gemv
from jq.kernels.gemv.panel_weights import Loaded, Part
from jq.kernels.gemv.panels import RowPanels
from jq.kernels.machine import dot


class DecodedPanel(RowPanels):
    """One panel, whose codes are taken out of their planes once; rows' sums are found before."""

    def __init__(self, *given: Any, panel: ir.Value, sums: ir.Value) -> None:
        super().__init__(*given)
        self.panel, self.sums = panel, sums

    def emit(self) -> None:
        b, gemv, each = self.b, self.gemv, self.layout.blocks

        def decode(at: Index, count: int) -> None:
            with b.loop(0, count) as block:
                loaded: Loaded = {}
                for i in range(gemv.block // self.isa.dot.group):
                    for j in range(self.wide):
                        codes = super(DecodedPanel, self)._codes(loaded, at, block.index, i, j)
                        b.put(codes, self.panel, self._place(at, block.index, i, j))

        b.sweep(gemv.blocks, each, decode, counted=True)
        super().emit()

    def _place(self, chunk: Index, block: Index, i: int, j: int) -> list[Index]:
        b, group = self.b, self.isa.dot.group
        number = b.offset(b.scaled(chunk, self.layout.blocks), block)
        step = b.offset(b.scaled(number, self.gemv.block // group), i)
        return [step, j * self.isa.lanes * group]

    def _codes(self, loaded: Loaded, chunk: Index, block: Index, i: int, j: int) -> ir.Value:
        kind = vec(self.isa.lanes * self.isa.dot.group, "i8")
        return self.b.get(self.panel, self._place(chunk, block, i, j), kind)

    def sum_rows(self) -> None:
        """What `_sum` reads."""
        b, gemv, isa = self.b, self.gemv, self.isa
        kind, weights = vec(isa.lanes * isa.dot.group, "i8"), dot.splat(b, isa, self.factor)
        with b.loop(0, gemv.row_block) as row, b.loop(0, gemv.blocks) as block:
            at = [b.offset(self.part.row, row.index), b.scaled(block.index, gemv.block)]
            codes = b.load(self.codes, at, kind, gemv.block)
            found = b.reduce(dot.dot(b, isa, b.i32(0, isa.lanes), weights, codes), b.add)
            b.put(b.shuffle(found, found, [0]), self.sums, [row.index, block.index])

    def _sum(self, row: Index, number: Index) -> ir.Value:
        one = self.b.get(self.sums, [row, number], vec(1, "i32"))
        return self.b.broadcast(one, self.isa.lanes)


def decoded(gemv: Gemv, b: Builder, tensors: Values, tile: Tile, whole: Part) -> None:
    """All panels of a workgroup, one after the other."""
    size = gemv.vectors * gemv.target.lanes * gemv.unit.dot.group
    panel = b.scratch([gemv.k // gemv.unit.dot.group, size], "i8")
    sums = b.scratch([gemv.row_block, gemv.blocks], "i32")

    def of(first: Index) -> DecodedPanel:
        part = replace(whole, first=first, wide=gemv.vectors)
        return DecodedPanel(gemv, b, tensors, tile, part, panel=panel, sums=sums)

    if of(0).factor:
        of(0).sum_rows()
    with b.loop(0, whole.wide, gemv.vectors, writes=[tile]) as loop:
        of(loop.index).emit()
