"""The loop nest of a product on vectors: rows by one panel of columns.

for tile of rows in block:                         # `_tiles`
  acc[rows][vectors] = start of the row            # `Start`
  for run of codes that lie side by side:          # one for a matrix; a row of taps of a window
    for k in 0 .. groups of the run:               # `_along`
      acc[row][j] += codes[row, k] * weights[k, j] # `_step`
      (a line of the next panel's weights is fetched)
    (the last codes of a run that `group` does not divide)
  epilogue, store                                  # or later (`pipelined`)"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tile, Values, vec
from jq.kernels.epilogue.emission import TOGETHER, Columns, Epilogue, Row
from jq.kernels.epilogue.step import ELEMENT
from jq.kernels.gemm.source import PanelPart, Source, Start, first_sums, split_starts
from jq.kernels.machine import dot
from jq.kernels.machine.tiling import MANY_REGISTERS, tiles
from jq.kernels.schedule.prefetch import FIRST, Prefetch, address, fetch

STAGE = 1024  # codes of a row that are widened at a time: some rows fit the first cache
FAR = 512  # floats between rows of a residual: a processor fetches no lines so far apart by itself


@dataclass(frozen=True)
class Run:
    """Codes that lie side by side: where they start in each row of a tile, which run of the rows
    it is, its first step in the packed weights; and which tile (for `Prefetch`)."""

    starts: Sequence[Indices]
    number: Index
    base: Index
    tile: Index


class Panel:
    """Rows from `place.row` by one panel of columns from `place.column`."""

    def __init__(
        self, source: Source, b: Builder, tensors: Values, tile: Tile, place: PanelPart
    ) -> None:
        self.source, self.b, self.place, product = source, b, place, source.product
        self.isa, self.tile, self.prefix = product.target, tile, list(place.prefix)
        count = product.code_operands
        self.bytes, self.codes, (self.weights, *rest) = tensors[:count], tensors[0], tensors[count:]
        starts, steps = split_starts(product, rest)
        self.vectors = range(product.tiling.vectors)
        columns = Columns(self.isa.lanes, len(self.vectors), place.column, product.span)
        self.epilogue = Epilogue(b, product.epilogue, steps, columns, place.prefix)
        self.start = Start(product, self.epilogue, self._first_sums(starts), starts[1:])
        self.prefetch: Prefetch | None = None
        asks = product.floats and self.isa.registers < MANY_REGISTERS and product.shape[1] >= FAR
        found = [s for step in self.epilogue.steps for s in step.sources if s[0] == ELEMENT]
        self.residual = address(found[0][2], "residual") if asks and found else None
        self.staged = self.isa.dot.element == "i16"  # codes are widened in memory first
        self.among: list[Tile] = []  # tiles that are written among products

    def emit(self, block: int, wanted: Index) -> None:
        """The first `wanted` of `block` rows."""
        tall = min(block, self.source.product.tiling.rows)
        if self.source.fetches:
            at, rows = self.place.panel, self.place.rows
            self.prefetch = Prefetch.of(self.b, self.isa, self.weights, at, rows, block, tall)
        if not isinstance(wanted, int):
            self._tiles(tall, block, wanted)
            return
        whole, rest = tiles(wanted, tall)
        if whole:
            self._tiles(tall, whole, whole)
        if rest:
            self._rows(whole, rest)

    def _tiles(self, tall: int, block: int, wanted: Index) -> None:
        """Register tiles of the first `wanted` of `block` rows, at most up to the block's end."""
        with self.b.loop(0, wanted, tall, writes=[self.tile]) as loop:
            self._rows(self.b.at_most(loop.index, block - tall), tall)

    def _rows(self, first: Index, count: int) -> None:
        """One register tile: `count` rows from `first` (within the block)."""
        acc, wide = self._products(first, count), len(self.vectors)
        self._finish(first, [acc[i : i + wide] for i in range(0, count * wide, wide)])

    def _products(self, first: Index, count: int) -> list[ir.Value]:
        b, source = self.b, self.source
        rows = [b.offset(self.place.row, b.offset(first, i)) for i in range(count)]
        corners = [source.corner(b, row) for row in rows]
        for row in rows if self.residual else ():  # it comes while products are computed
            number = b.offset(b.scaled(row, source.product.shape[1]), self.place.column)
            fetch(b, self.residual, b.scaled(number, 4), FIRST)
        tile = self.prefetch.tile(first) if self.prefetch else 0
        acc = self._taps(self._starts(rows), corners, tile)
        for lower in self.bytes[1:]:
            self.codes = lower
            acc = self._taps([b.shift_left(v, 8) for v in acc], corners, tile)
        self.codes = self.bytes[0]
        return acc

    def _taps(self, acc: Values, corners: Sequence[Indices], tile: Index) -> list[ir.Value]:
        """All products of the codes at hand."""
        b, source = self.b, self.source
        high, wide = source.runs
        with b.loop(0, high, carry=acc, writes=self.among) as down:
            with b.loop(0, wide, carry=down.carried, writes=self.among) as along:
                h, w = down.index, along.index
                number = b.offset(b.scaled(h, wide), w)
                starts = [source.tap(b, corner, h, w) for corner in corners]
                run = Run(starts, number, b.scaled(number, source.run_steps), tile)
                along.carried = self._run(along.carried, run)
            down.carried = along.carried
        return down.carried

    def _run(self, acc: list[ir.Value], run: Run) -> list[ir.Value]:
        if self.staged:
            return self._widened(acc, run)
        acc = self._groups(acc, run)
        tail = self.source.tail
        return self._step(acc, run, self.source.whole, tail) if tail else acc

    def _groups(self, acc: list[ir.Value], run: Run) -> list[ir.Value]:
        """The whole groups; several at a time where the product takes them by element."""
        whole, lanes = self.source.whole, self.isa.lanes
        if not self.isa.dot.by_element:
            return self._along(acc, run, 0, whole)
        several, rest = divmod(whole, lanes)
        if several:
            with self.b.loop(0, several, carry=acc) as loop:
                loop.carried = self._several(loop.carried, run, loop.index)
            acc = loop.carried
        return self._along(acc, run, several * lanes, rest)

    def _along(self, acc: list[ir.Value], run: Run, begin: Index, count: Index) -> list[ir.Value]:
        if count == 0:
            return acc
        with self.b.loop(0, count, carry=acc) as loop:
            loop.carried = self._step(loop.carried, run, self.b.offset(begin, loop.index))
        return loop.carried

    def _step(self, acc: Values, run: Run, k: Index, valid: int | None = None) -> list[ir.Value]:
        """All products of one group of codes."""
        b, isa = self.b, self.isa
        weights = self._weights(b.offset(run.base, k), None if valid else run.tile)
        step, out = b.scaled(k, isa.dot.group), list[ir.Value]()
        for *lead, column in run.starts:
            at = [*lead, b.offset(column, step)]
            codes = dot.codes(b, isa, self.codes, at, self.source.flip, valid)
            out += self._multiplied(acc[len(out) : len(out) + len(weights)], [codes], weights)
        return out

    def _several(self, acc: list[ir.Value], run: Run, number: Index) -> list[ir.Value]:
        """All products of as many groups as a register has lanes."""
        b, isa = self.b, self.isa
        k = b.scaled(number, isa.lanes)
        at = b.scaled(k, isa.dot.group)
        places = [[*lead, b.offset(column, at)] for *lead, column in run.starts]
        rows = [dot.several(b, isa, self.codes, p, self.source.flip) for p in places]
        for lane in range(isa.lanes):
            weights = self._weights(b.offset(run.base, b.offset(k, lane)), run.tile)
            acc = self._multiplied(acc, [row[lane] for row in rows], weights)
        return acc

    def _widened(self, acc: list[ir.Value], run: Run) -> list[ir.Value]:
        """A run whose codes are widened first, `STAGE` of them at a time: each is read once for
        every vector, and a broadcast of what lies in memory as the product takes it costs a load.
        """
        b, group, source = self.b, self.isa.dot.group, self.source
        length, rows = source.whole * group + source.tail, range(len(run.starts))
        room = math.ceil(min(length, STAGE) / group) * group
        stage = b.scratch([len(rows), room], self.isa.dot.element)

        def part(acc: list[ir.Value], number: Index, count: int) -> list[ir.Value]:
            self._widen(run.starts, b.scaled(number, STAGE), count, stage)
            begin = b.offset(run.base, b.scaled(number, STAGE // group))
            with b.loop(0, math.ceil(count / group), carry=acc) as loop:
                weights = self._weights(b.offset(begin, loop.index), run.tile)
                where, wide, out = b.scaled(loop.index, group), len(weights), list[ir.Value]()
                for i in rows:  # one at a time: all codes at once would take registers of sums
                    codes = dot.staged(b, self.isa, stage, [i, where])
                    row = loop.carried[i * wide : (i + 1) * wide]
                    out += self._multiplied(row, [codes], weights)
                loop.carried = out
            return loop.carried

        return b.fold(length, STAGE, part, acc, counted=True)

    def _widen(self, starts: Sequence[Indices], first: Index, count: int, stage: ir.Value) -> None:
        """`count` codes of each row from `first` on; zeros fill the last group."""
        b, isa = self.b, self.isa
        size = isa.lanes * isa.dot.group

        def words(at: Index, valid: int) -> None:
            for i, (*lead, column) in enumerate(starts):
                where = [*lead, b.offset(b.offset(column, first), at)]
                codes = b.load(self.codes, where, vec(size, "i8"), valid)
                wide = dot.operand(b, isa, codes, self.source.flip)
                room = math.ceil(valid / isa.dot.group) * isa.dot.group
                if room < size:
                    wide = b.shuffle(wide, wide, list(range(room)))
                b.put(wide, stage, [i, at])

        b.sweep(count, size, words)

    def _multiplied(self, acc: Values, codes: Values, weights: Values) -> list[ir.Value]:
        pairs = [(w, c) if self.source.product.swapped else (c, w) for c in codes for w in weights]
        return [dot.dot(self.b, self.isa, a, *p) for a, p in zip(acc, pairs, strict=True)]

    def _weights(self, step: Index, tile: Index | None) -> list[ir.Value]:
        """The vectors of a panel's step; a tile fetches those of the next panel meanwhile."""
        if self.prefetch and tile is not None:
            self.prefetch.fetch(tile, step)
        size, streams = self.isa.lanes * self.isa.dot.group, self.source.streams
        found = []
        for j in self.vectors:
            stream, vector = divmod(j, len(self.vectors) // streams)
            at = [*self.prefix, *[stream] * (streams > 1), self.place.panel, step, vector * size]
            found.append(dot.weights(self.b, self.isa, self.weights, at, self.source.stored))
        return found

    def _first_sums(self, starts: Values) -> list[ir.Value]:
        """The start of the sums of the panel's vectors, whatever the row."""
        return first_sums(self.epilogue, starts)

    def _starts(self, rows: Indices) -> list[ir.Value]:
        corners = [self.source.corner(self.b, row) for row in rows]
        sums: Sequence[ir.Value | None] = [None] * len(rows)
        if self.start.needs_sums:
            sums = self.source.row_sums(self.b, self.codes, corners)
        return [
            v
            for row, total in zip(rows, sums, strict=True)
            for v in self.start.of(self.source.sample(self.b, row), total)
        ]

    def _finish(
        self, first: Index, accumulators: Sequence[Values], vector: int = 0, chain: int = TOGETHER
    ) -> None:
        """The epilogue of rows from `first`, and of a panel's vectors from `vector`."""
        b, finished = self.b, []
        column = b.offset(self.place.to, vector * self.isa.lanes)
        for i, acc in enumerate(accumulators):
            local = b.offset(first, i)
            row = b.offset(self.place.row, local)
            to = [*([0] * len(self.prefix)), local]
            finished.append(Row(acc, [row], to, [self.source.sample(b, row)], column, vector))
        self.epilogue.store(self.isa, self.tile, finished, chain)
