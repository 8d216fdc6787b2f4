"""The body of `Gemv`."""

import math
from collections.abc import Sequence
from dataclasses import replace

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tile, Tiles, Values, vec
from jq.kernels.emit.dispatches import Operand, Operands, Output, dispatch, emit
from jq.kernels.gemv.description import Gemv
from jq.kernels.gemv.panel_weights import Loaded, Part, joined, number_of
from jq.kernels.gemv.panels import Levels, RowPanels, StackedPanel
from jq.kernels.gemv.tiled import pack_rows, tiled
from jq.kernels.machine import dot
from jq.kernels.schedule import prefetch
from jq.kernels.tensor import TensorType

# `Gemv` of many rows: codes are taken out of their planes once for all of them.
#
#     dispatch 1: sums of the rows' codes by block, which the offset and minima are multiplied by
#     dispatch 2, workgroup (columns, rows):
#       for panel of the workgroup:
#         totals[rows] = 0
#         for run of blocks:
#           codes and scales of the run out of their records, onto the stack
#           for tile of rows: as for few rows, from the row's totals to its totals
#         epilogue, store
#
# A run fits the first cache beside the rows of a tile. Integers that are scales are multiplied by
# their factor once for all rows. The order in which a number's parts are added is that of few rows.
SUMMED = 16  # rows of a workgroup whose codes are summed


def sum_rows(gemv: Gemv, operands: Operands) -> list[Operand]:
    """Sums of rows' codes: i32 [M, digits, blocks], times the offset, negative; or, where minima or
    zero points are, f32 [M, 1, blocks] of numbers, times the rows' scales where minima are."""
    weight = 1 if gemv.corrected else gemv.offset if gemv.unit.dot.lhs_unsigned else 0
    if not weight:
        return []
    digits = range(gemv.digits)
    kept = 1 if gemv.corrected else gemv.digits
    kind = TensorType((gemv.m, kept, gemv.blocks), "f32" if gemv.corrected else "i32")
    rows = min(SUMMED, gemv.m)

    def first(b: Builder, ids: Indices) -> Index:
        return b.part(ids[0], rows, gemv.m)

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        codes, scale = tensors
        isa, (out,) = gemv.unit, tiles
        size, weights = vec(isa.lanes * isa.dot.group, "i8"), dot.splat(b, isa, weight)
        loops = b.loop(0, rows, writes=[out]), b.loop(0, gemv.blocks, writes=[out])
        with loops[0] as row, loops[1] as block:
            here = b.offset(first(b, ids), row.index)
            at, totals = b.scaled(block.index, gemv.block), []
            for digit in digits:
                place = [here, at] if gemv.digits == 1 else [here, digit, at]
                read = b.load(codes, place, size, gemv.block)
                total = b.reduce(dot.dot(b, isa, b.i32(0, isa.lanes), weights, read), b.add)
                totals.append(b.shuffle(total, total, [0]))
            if not gemv.corrected:
                for digit, one in enumerate(totals):
                    b.store(b.sub(b.i32(0, 1), one), out, [row.index, digit, block.index])
                return
            number = number_of(b, joined(b, totals), 1)
            if gemv.minimum and gemv.per_block:
                number = b.mul(number, b.load(scale, [here, block.index], vec(1, "f32")))
            b.store(number, out, [row.index, 0, block.index])

    output = Output(kind, (rows, kept, gemv.blocks), lambda b, ids: [first(b, ids), 0, 0])
    return [(dispatch(operands, [output], [math.ceil(gemv.m / rows)], body)[0], kind)]


class DecodedPanel(StackedPanel):
    """One panel, a run of its blocks at a time."""

    def emit(self) -> None:
        b, gemv = self.b, self.gemv
        self._clear(gemv.row_block)
        with b.loop(0, self.part.there):
            b.sweep(gemv.blocks, gemv.decoded_run, self._run, counted=True)
        with b.loop(0, gemv.row_block, writes=[self.tile]) as row:
            self._finish(row.index, self._totals(row.index))

    def _run(self, at: Index, count: int) -> None:
        """`count` blocks of run `at`, times all rows."""
        b, gemv = self.b, self.gemv
        begin = b.scaled(at, gemv.decoded_run)
        factors = self._factors(at) if gemv.outer else []
        with b.loop(0, count) as t:
            where = (at, t.index) if gemv.outer else (b.offset(begin, t.index), 0)
            self._decode(*where, t.index, factors)

        tiles = math.ceil(gemv.row_block / gemv.rows)

        def tile(number: Index, rows: int) -> None:
            if tiles > 1:
                self._fetch_run(at, gemv.decoded_run, number, tiles)
            first = b.scaled(number, gemv.rows)
            self.local = [b.offset(first, i) for i in range(rows)]
            total = [value for row in self.local for value in self._totals(row)]
            with b.loop(0, count, carry=total) as t:
                t.carried = self._products(t.carried, t.index, b.offset(begin, t.index))
            for i, row in enumerate(self.local):
                self._put_totals(row, t.carried[i * self.wide : (i + 1) * self.wide])

        b.sweep(gemv.row_block, gemv.rows, tile, counted=True)

    def _decode(self, chunk: Index, block: Index, to: Index, factors: Sequence[Values]) -> None:
        """The codes and numbers of a block, onto the stack as block `to` of a run."""
        b, gemv, isa, loaded = self.b, self.gemv, self.isa, Loaded()
        for i in range(gemv.block // isa.dot.group):
            for j in range(self.wide):
                codes = super()._codes(loaded, chunk, block, i, j)
                b.put(codes, self.panel, self._place(to, i, j))
        if not gemv.levels:
            return
        scales, minima, zeros = self._levels(chunk, block, factors)
        for i, value in enumerate([*scales, *(v for m in minima for v in m), *zeros]):
            b.put(value, self.numbers, [to, i * isa.lanes])

    def _place(self, block: Index, i: int, j: int) -> list[Index]:
        b, group = self.b, self.isa.dot.group
        step = b.offset(b.scaled(block, self.gemv.block // group), i)
        return [step, j * self.isa.lanes * group]

    def _stored(self, block: Index) -> Levels:
        lanes, found = self.isa.lanes, []
        if not self.gemv.levels:
            return self._levels(0, 0)
        for level in range(self.gemv.levels):
            at = [(level * self.wide + j) * lanes for j in range(self.wide)]
            found.append([self.b.get(self.numbers, [block, i], vec(lanes, "f32")) for i in at])
        scales, *rest = found
        return (scales, [], rest[0]) if self.gemv.zero else (scales, rest, [])

    def _products(self, sums: Values, block: Index, number: Index) -> list[ir.Value]:
        """The sums after block `block` of the run, which is `number` along K."""
        b, gemv, isa = self.b, self.gemv, self.isa
        rows = [b.offset(self.part.row, row) for row in self.local]
        extra, start, digits = [], list[ir.Value](), range(gemv.digits)
        if self.sums is not None and gemv.corrected:
            extra = [sums for row in rows for sums in [self._of_block(row, number)] for _ in digits]
        elif self.sums is not None:
            each = [self._of_block(row, number, digit) for row in rows for digit in digits]
            start = [of_digit for of_digit in each for _ in range(self.wide)]
        acc = dot.Sums(b, isa, len(rows) * gemv.digits * self.wide, start)
        kind = vec(isa.lanes * isa.dot.group, "i8")
        for i in range(gemv.block // isa.dot.group):
            weights = [b.get(self.panel, self._place(block, i, j), kind) for j in range(self.wide)]
            at = b.offset(b.scaled(number, gemv.block), i * isa.dot.group)
            for r, (row, digit) in enumerate((row, d) for row in rows for d in digits):
                place = [row, at] if gemv.digits == 1 else [row, digit, at]
                x = dot.codes(b, isa, self.codes, place, False)
                for j, weight in enumerate(weights):
                    acc.add(r * self.wide + j, weight, x)
            acc.end_step()
        return self._scaled(sums, acc.result(), extra, rows, self._stored(block), number)

    def _of_block(self, row: Index, number: Index, digit: int = 0) -> ir.Value:
        assert self.sums is not None
        kind = "f32" if self.gemv.corrected else "i32"
        return self.epilogue.scalar(self.sums, [row, digit, number], kind)


def decoded(gemv: Gemv, b: Builder, tensors: Values, tile: Tile, whole: Part) -> None:
    """All panels of a workgroup, one after the other."""
    *tensors, sums = tensors if gemv.summed else (*tensors, None)
    address = prefetch.address(tensors[2])
    lanes, wide, run = gemv.target.lanes, gemv.vectors, gemv.decoded_run
    group = gemv.unit.dot.group
    scratch = [
        b.scratch([run * gemv.block // group, wide * lanes * group], "i8"),
        b.scratch([run, max(1, gemv.levels) * wide * lanes], "f32"),
        b.scratch([gemv.row_block, wide * lanes], "f32"),
    ]
    with b.loop(0, whole.wide, wide, writes=[tile]) as loop:
        part = replace(whole, first=loop.index, wide=wide)
        given = (gemv, b, tensors, tile, part, None, address)
        DecodedPanel(*given, sums=sums, scratch=scratch).emit()


def _plain(gemv: Gemv, b: Builder, tensors: Values, tile: Tile, whole: Part) -> None:
    """Parts of a workgroup, as wide as registers allow."""
    stage = None
    if gemv.staged:
        size = gemv.target.lanes * gemv.unit.dot.group
        room = math.ceil(gemv.k / size) * size
        stage = b.scratch([gemv.rows, room], gemv.unit.dot.element)

    address = prefetch.address(tensors[2]) if gemv.ahead else None

    def emit_part(first: Index) -> None:
        part = replace(whole, first=first, wide=gemv.together)
        RowPanels(gemv, b, tensors, tile, part, stage, address).emit()

    if gemv.together % gemv.vectors:
        for first in range(0, whole.wide, gemv.together):
            emit_part(first)
        return
    with b.loop(0, whole.wide, gemv.together, writes=[tile]) as loop:
        emit_part(loop.index)


@emit.register
def emit_gemv(gemv: Gemv, given: Operands) -> list[ir.Value]:
    operands = list(given)
    width, rows = min(gemv.n, gemv.width), gemv.row_block
    chosen = [operands.pop(3)] if gemv.stack else []
    if gemv.tiled:
        (codes, *sums), rest = pack_rows(gemv, operands[:2]), operands[1:]
        operands = [codes, *rest, *sums]
    elif gemv.decoded:
        operands = [*operands, *sum_rows(gemv, operands[:2])]

    def column(b: Builder, ids: Indices) -> Index:
        return b.part(ids[0], width, gemv.n)

    def row(b: Builder, ids: Indices) -> Index:
        return b.part(ids[1], rows, gemv.m)

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        wide, weight = gemv.streams * gemv.vectors, dict[str, Index]()
        if chosen:
            *tensors, numbers = tensors
            number = b.read_index(numbers, [ids[1]], gemv.stack)
            weight["there"] = b.smaller(b.above(gemv.stack, number), 1)
            weight["panel"] = b.scaled(b.at_most(number, gemv.stack - 1), gemv.streams)
        whole = Part(ids[0], column(b, ids), row(b, ids), 0, wide, **weight)
        if gemv.tiled:
            tiled(gemv, b, tensors, tiles[0], whole, ids[1])
        else:
            (decoded if gemv.decoded else _plain)(gemv, b, tensors, tiles[0], whole)

    output = Output(gemv.results[0], (rows, width), lambda b, ids: [row(b, ids), column(b, ids)])
    counts = [gemv.workgroups, math.ceil(gemv.m / rows)]
    return dispatch([*operands, *chosen], [output], counts, body)
