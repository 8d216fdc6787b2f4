"""The body of `PackOperand`."""

from __future__ import annotations

from iree.compiler import ir

from jq.kernels.build.bodies import Operands, emit
from jq.kernels.build.builder import Builder, Tiles
from jq.kernels.build.dispatch import Output, dispatch
from jq.kernels.build.lanes import transpose
from jq.kernels.build.values import Index, Indices, Values, vec
from jq.kernels.gemm.pack_operand import PackOperand
from jq.kernels.machine import dot


@emit.register
def _(kernel: PackOperand, operands: Operands) -> list[ir.Value]:
    gemm, lead, depth = kernel.gemm, kernel.gemm.lead, len(kernel.gemm.lead)
    unit, width = (1,) * depth, kernel.vectors * kernel.target.lanes
    tall = kernel.vectors if gemm.on_tiles else 1

    def panel(b: Builder, ids: Indices) -> list[Index]:
        return [*ids[1 : 1 + depth], b.scaled(ids[0], tall), 0, 0]

    def columns(b: Builder, ids: Indices) -> list[Index]:
        return [*ids[1 : 1 + depth], _column(kernel, b, ids[0])]

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        column = _column(kernel, b, ids[0])
        for j in range(kernel.vectors):
            _Vector(kernel, b, tensors[0], tiles, ids[1 : 1 + depth], column, j).emit()

    weights, *sums = kernel.results
    outputs = [Output(weights, (*unit, tall, *weights.shape[-2:]), panel)]
    outputs += [Output(kind, (*unit, width), columns) for kind in sums]
    return dispatch(operands, outputs, [kernel.panels, *lead], body)


def _column(kernel: PackOperand, b: Builder, panel: Index) -> Index:
    """First column of a panel."""
    n, width = kernel.gemm.n, kernel.vectors * kernel.target.lanes
    if not kernel.gemm.on_tiles:
        return b.at_most(b.scaled(panel, width), max(0, n - width))
    cut = kernel.gemm.tiles
    start = b.at_most(b.scaled(b.divided(panel, cut.panels), cut.range), n - cut.range)
    inside = b.scaled(b.modulo(panel, cut.panels), cut.width)
    return b.offset(start, b.at_most(inside, max(0, cut.range - cut.width)))


class _Vector:
    """One vector of columns of a panel, along all of K."""

    def __init__(
        self,
        kernel: PackOperand,
        b: Builder,
        source: ir.Value,
        tiles: Tiles,
        prefix: Indices,
        column: Index,
        j: int,
    ) -> None:
        self.kernel, self.b, self.isa, self.gemm = kernel, b, kernel.target, kernel.gemm
        self.source, self.prefix, self.j = source, list(prefix), j
        self.weights, self.init, *self.rest = tiles
        self.lead = [0] * len(self.prefix)
        self.first = b.offset(column, j * self.isa.lanes)
        self.group = self.isa.dot.group
        self.kind = vec(self.isa.lanes * self.group, "i8")
        self.width = min(self.isa.lanes, self.gemm.n)  # columns that exist

    def emit(self) -> None:
        b, gemm = self.b, self.gemm
        total = [b.i32(0, self.isa.lanes)]
        pack, step = (
            (self._square, self.isa.lanes * self.group)
            if self.kernel.transposed
            else (self._rows, self.group)
        )
        total = b.fold(gemm.k, step, pack, total, writes=[self.weights], counted=True)
        if gemm.on_tiles:
            for group in range(gemm.groups, gemm.tiles.chunks * 16):
                self._store(b.constant(self.kind, 0), group)
        self._sums(total[0])

    def _rows(self, total: Values, group: Index, valid: int) -> Values:
        """One group from the rows of [K, N]; `valid` rows of it exist."""
        b, rows = self.b, []
        for i in range(self.group):
            row = b.constant(vec(self.isa.lanes, "i8"), 0)
            if i < valid:
                k = b.offset(b.scaled(group, self.group), i)
                at = [*self.prefix, k, self.first]
                row = b.load(self.source, at, vec(self.isa.lanes, "i8"), self.width)
            rows.append(row)
        return self._put(total, dot.interleave(b, rows), group)

    def _square(self, total: Values, block: Index, valid: int) -> Values:
        """`lanes` groups from as many rows of [N, K]; `valid` codes of each row exist."""
        b, n = self.b, self.isa.lanes
        word = vec(n, f"i{8 * self.group}")
        rows = []
        for i in range(n):
            row = b.constant(self.kind, 0)
            if i < self.width:
                column = b.offset(self.first, i)
                at = [*self.prefix, column, b.scaled(block, n * self.group)]
                row = b.load(self.source, at, self.kind, valid)
            rows.append(b.bitcast(row, word))
        for i, words in enumerate(transpose(b, rows)[: -(-valid // self.group)]):
            group = b.offset(b.scaled(block, n), i)
            total = self._put(total, b.bitcast(words, self.kind), group)
        return total

    def _put(self, total: Values, codes: ir.Value, group: Index) -> Values:
        """Stores a group; the sum with its codes."""
        b, isa = self.b, self.isa
        flipped = b.xor(codes, b.constant(self.kind, -128)) if self.gemm.swapped else codes
        self._store(flipped, group)
        return [dot.dot(b, isa, total[0], dot.splat(b, isa, 1), dot.operand(b, isa, codes))]

    def _store(self, codes: ir.Value, group: Index) -> None:
        b, size = self.b, self.isa.lanes * self.group
        if self.gemm.on_tiles:
            at = [self.j, b.divided(group, 16), b.scaled(b.modulo(group, 16), 16)]
            b.store(b.bitcast(codes, vec(16, "i32")), self.weights, [*self.lead, *at])
        else:
            b.store(codes, self.weights, [*self.lead, 0, group, self.j * size])

    def _sums(self, total: ir.Value) -> None:
        """`init`, and `colsum` where the left operand has a zero point per row."""
        b, kernel, gemm, lanes = self.b, self.kernel, self.gemm, self.isa.lanes
        at = [*self.lead, self.j * lanes]
        factor = b.i32(-(kernel.zero_point + gemm.code_offset), lanes)
        constant = b.i32(gemm.k * kernel.zero_point * kernel.column_zero, lanes)
        b.store(b.add(b.mul(total, factor), constant), self.init, at)
        for tile in self.rest:
            b.store(b.sub(total, b.i32(gemm.k * kernel.column_zero, lanes)), tile, at)
