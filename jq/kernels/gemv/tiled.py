"""`Gemv` of many rows on matrix tiles.

    dispatch 1, workgroup (tile of rows): codes to tiles of 16 rows x a block (or 64 codes), and
      the sums of their blocks where minima or zero points are: products with columns of ones
    dispatch 2, workgroup (columns, rows):
      for panel of the workgroup:
        for run of blocks:
          codes out of their planes, onto the stack, as tiles
          for tile of rows:
            products of tiles, a block each, to memory
            row by row: what vectors do with the integers of a block, in the same order

Integers are exact, so a row has the bits that it has on vectors."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tile, Tiles, Values, vec
from jq.kernels.emit.dispatches import Operand, Operands, Output, dispatch
from jq.kernels.gemv.description import Gemv
from jq.kernels.gemv.panel_weights import Loaded, Part
from jq.kernels.gemv.panels import Levels, StackedPanel
from jq.kernels.machine import ROWS, WORDS, amx
from jq.kernels.schedule import prefetch
from jq.kernels.tensor import TensorType

ONES = 0x01010101


def pack_rows(gemv: Gemv, operands: Operands) -> list[Operand]:
    """Codes as tiles: i32 [tiles, steps, words]; and f32 [tiles, 16, blocks], the sums of blocks
    of rows, times their scale where minima are."""
    blocks, per_tile = math.ceil(gemv.m / gemv.row_block), gemv.row_tiles
    steps, words = gemv.k // gemv.depth, ROWS * gemv.depth // 4
    kinds = [TensorType((blocks * per_tile, steps, words), "i32")]
    if gemv.corrected:
        kinds.append(TensorType((blocks * per_tile, ROWS, gemv.blocks), "f32"))

    def place(b: Builder, ids: Indices) -> list[Index]:
        return [b.offset(b.scaled(ids[1], per_tile), ids[0]), 0, 0]

    def body(b: Builder, ids: Indices, tensors: Values, out: Tiles) -> None:
        begin = b.part(ids[1], gemv.row_block, gemv.m)
        first = b.offset(begin, tile_row(gemv, b, ids[0]))
        rows = _Rows(gemv, b, tensors, first)
        b.sweep(steps, ROWS, lambda at, count: rows.pack(at, count, out[0]), writes=[out[0]])
        if gemv.corrected:
            writes = [out[1]]
            b.sweep(gemv.blocks, ROWS, lambda at, n: rows.add(at, n, out[1]), writes=writes)

    outputs = [Output(kind, (1, *kind.shape[1:]), place) for kind in kinds]
    results = dispatch(operands, outputs, [per_tile, blocks], body)
    return list(zip(results, kinds, strict=True))


class _Rows:
    """Sixteen rows from `first` on."""

    def __init__(self, gemv: Gemv, b: Builder, tensors: Values, first: Index) -> None:
        self.gemv, self.b, self.first = gemv, b, first
        self.codes, self.scale = tensors
        if gemv.corrected:
            self.tiles = b.scratch([gemv.k // gemv.depth, ROWS * gemv.depth // 4], "i32")
            self.found = b.scratch([WORDS], "i32")
            self.ones = b.scratch([2 * ROWS], "i32")  # a column of ones, wherever it is read from
            for i in (0, ROWS):
                b.put(b.i32(0, ROWS), self.ones, [i])
            b.put(b.i32(ONES, 1), self.ones, [ROWS - 1])

    def pack(self, at: Index, count: int, out: Tile) -> None:
        """Packs `count` steps along K."""
        b, depth = self.b, self.gemv.depth
        with b.loop(0, count, writes=[out]) as step, b.loop(0, ROWS, writes=[out]) as r:
            number = b.offset(at, step.index)
            where = [b.offset(self.first, r.index), b.scaled(number, depth)]
            words = b.bitcast(b.load(self.codes, where, vec(depth, "i8")), vec(depth // 4, "i32"))
            to = b.scaled(r.index, depth // 4)
            b.store(words, out, [0, number, to])
            if self.gemv.corrected:
                b.put(words, self.tiles, [number, to])

    def add(self, at: Index, count: int, out: Tile) -> None:
        """The sums of so many blocks: the product of block i has ones in column i alone."""
        b, gemv = self.b, self.gemv
        acc = amx.zero(b)
        for i in range(count):
            ones = amx.repeat(b, self.ones, ROWS - 1 - i, gemv.depth)
            for step in range(gemv.block // gemv.depth):
                number = b.offset(b.scaled(b.offset(at, i), gemv.block // gemv.depth), step)
                left = amx.load(b, self.tiles, [number, 0], ROWS * gemv.depth // 4)
                acc = amx.product(b, acc, left, ones, "tdpbssd", gemv.depth)
        amx.store(b, acc, self.found, 0)
        with b.loop(0, ROWS, writes=[out]) as r:
            value = b.to_f32(b.get(self.found, [b.scaled(r.index, ROWS)], vec(ROWS, "i32")))
            if gemv.minimum and gemv.per_block:
                where = [b.offset(self.first, r.index), at]
                value = b.mul(value, b.load(self.scale, where, vec(ROWS, "f32"), count))
            b.store(value, out, [0, r.index, at], count)


class TiledPanel(StackedPanel):
    """One panel: a run of its blocks at a time as tiles on the stack, times all rows."""

    def __init__(self, *given: Any, tile: Index, **more: Any) -> None:
        super().__init__(*given, **more)
        self.first_tile, self.unsigned = tile, False

    def emit(self) -> None:
        b, gemv = self.b, self.gemv
        self._clear(gemv.row_tiles * ROWS)
        with b.loop(0, self.part.there):
            if gemv.decodes_ahead:
                self._runs()
            else:
                b.sweep(gemv.blocks, gemv.run, self._run, counted=True)
        out = [self.tile]
        with b.loop(0, gemv.row_tiles, writes=out) as tile, b.loop(0, ROWS, writes=out) as r:
            local = b.offset(tile_row(gemv, b, tile.index), r.index)
            self._finish(local, self._totals(b.offset(b.scaled(tile.index, ROWS), r.index)))

    def _runs(self) -> None:
        """The same with the codes of the next run taken out in front of each run's products: tiles
        cannot be loaded until what was stored there has left the store buffer."""
        b, run, last = self.b, self.gemv.run, math.ceil(self.gemv.blocks / self.gemv.run) - 1
        rest = self.gemv.blocks - last * run
        self._decode(0, run if last else rest)
        if last > 1:
            with b.loop(0, last - 1) as loop:
                self._decode(b.offset(loop.index, 1), run)
                self._run(loop.index, run)
        if last:
            self._decode(last, rest)
            self._run(last - 1, run)
        self._run(last, rest)

    def _run(self, at: Index, count: int) -> None:
        """`count` blocks of run `at`, times all rows."""
        b, gemv = self.b, self.gemv
        if not gemv.decodes_ahead:
            self._decode(at, count)
        number = b.scaled(at, gemv.run)
        factors = self._factors(at) if gemv.outer else []
        levels = [
            self._levels(*((at, t) if gemv.outer else (b.offset(number, t), 0)), factors)
            for t in range(count)
        ]
        with b.loop(0, gemv.row_tiles) as tile:
            self._fetch_run(at, gemv.run, tile.index, gemv.row_tiles)
            with b.loop(0, count) as block:
                self._product(tile.index, number, block.index, self._place(at))
            with b.loop(0, ROWS) as r:
                self._add_row(tile.index, number, r.index, levels)

    def _decode(self, at: Index, count: int) -> None:
        """The codes of a run out of their planes."""
        b, gemv, size = self.b, self.gemv, self.gemv.block // 4 * ROWS
        with b.loop(0, count) as block:
            loaded: Loaded = {}
            number = b.offset(b.scaled(at, gemv.run), block.index)
            place = (at, block.index) if gemv.outer else (number, 0)
            for i in range(gemv.block // 4):
                for j in range(self.wide):
                    codes = b.bitcast(self._codes(loaded, *place, i, j), vec(ROWS, "i32"))
                    to = b.offset(self._place(at), b.scaled(block.index, size))
                    b.put(codes, self.panel, [j, b.offset(to, i * ROWS)])

    def _place(self, at: Index) -> Index:
        """The words in front of the codes of run `at` on the stack."""
        if not self.gemv.decodes_ahead:
            return 0
        return self.b.scaled(self.b.modulo(at, 2), self.gemv.run * self.gemv.block // 4 * ROWS)

    def _product(self, tile: Index, number: Index, block: Index, place: Index) -> None:
        """The integers of a block of a run that begins at block `number`, by all columns."""
        b, depth, steps = self.b, self.gemv.depth, self.gemv.block // self.gemv.depth
        words, tile = ROWS * depth // 4, b.offset(self.first_tile, tile)
        acc = [amx.zero(b) for _ in range(self.wide)]  # one for all would be copied
        for step in range(steps):
            here = b.offset(b.scaled(block, steps), step)
            where = b.offset(b.scaled(number, steps), here)
            left = amx.load(b, self.codes, [tile, where, 0], words)
            for j in range(self.wide):
                right = amx.load(b, self.panel, [j, b.offset(place, b.scaled(here, words))], words)
                acc[j] = amx.product(b, acc[j], left, right, "tdpbssd", depth)
        to = b.scaled(block, self.wide * WORDS)
        for j, done in enumerate(acc):
            amx.store(b, done, self.numbers, b.offset(to, j * WORDS))

    def _add_row(self, tile: Index, number: Index, r: Index, levels: Sequence[Levels]) -> None:
        """The integers of a row in a run, scaled and added to its totals."""
        b, kind = self.b, vec(ROWS, "i32")
        place = b.offset(b.scaled(tile, ROWS), r)
        row = b.offset(self.part.row, b.offset(tile_row(self.gemv, b, tile), r))
        totals = self._totals(place)
        for t, level in enumerate(levels):
            begin = b.offset(b.scaled(r, ROWS), t * self.wide * WORDS)
            places = [b.offset(begin, j * WORDS) for j in range(self.wide)]
            acc = [b.get(self.numbers, [at], kind) for at in places]
            block, extra = b.offset(number, t), list[ir.Value]()
            if self.sums is not None:
                at = [b.offset(self.first_tile, tile), r, block]
                extra = [self.epilogue.scalar(self.sums, at, "f32")]
            totals = self._scaled(totals, acc, extra, [row], level, block)
        self._put_totals(place, totals)


def tile_row(gemv: Gemv, b: Builder, tile: Index) -> Index:
    """The first row of a tile of a workgroup's rows."""
    return b.part(tile, ROWS, gemv.row_block)


def tiled(gemv: Gemv, b: Builder, tensors: Values, out: Tile, whole: Part, block: Index) -> None:
    """All panels of a workgroup, one after the other."""
    *tensors, sums = tensors if gemv.corrected else (*tensors, None)
    scratch = [
        b.scratch(
            [gemv.vectors, (1 + gemv.decodes_ahead) * gemv.run * gemv.block // 4 * ROWS], "i32"
        ),
        b.scratch([gemv.run * gemv.vectors * WORDS], "i32"),
        b.scratch([gemv.row_tiles * ROWS, gemv.vectors * ROWS], "f32"),
    ]
    first, address = b.scaled(block, gemv.row_tiles), prefetch.address(tensors[2])
    with b.loop(0, whole.wide, gemv.vectors, writes=[out]) as loop:
        part = replace(whole, first=loop.index, wide=gemv.vectors)
        given = (gemv, b, tensors, out, part, None, address)
        TiledPanel(*given, sums=sums, scratch=scratch, tile=first).emit()
