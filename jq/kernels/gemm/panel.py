"""The loop nest of an integer product on vectors: rows by one panel of columns.

for tile of rows in block:                       # `emit`
  acc[rows][vectors] = start of the row          # `Start`
  for run of codes that lie side by side:        # one for a matrix; a row of taps of a window
    for k in 0 .. groups of the run:             # `_products`
      acc[row][j] += codes[row, k] * weights[k, j]     # `_step`
      (a line of the next panel's weights is fetched)
    (the last codes of a run that `group` does not divide)
  epilogue, store                                # of the tile before, among the products of
                                                 # this one, where that pays
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iree.compiler import ir

from jq.kernels.build.builder import Builder, Tile
from jq.kernels.build.values import Index, Indices, Values, vec
from jq.kernels.epilogue.emission import TOGETHER, Columns, Epilogue, Row
from jq.kernels.gemm.product import PanelProduct
from jq.kernels.gemm.start import Start, split_corrections
from jq.kernels.machine import dot
from jq.kernels.machine.tiling import tiles
from jq.kernels.schedule import software_pipelining as pipeline
from jq.kernels.schedule.padded_output import Part
from jq.kernels.schedule.prefetch import Prefetch
from jq.kernels.schedule.software_pipelining import Between

STAGE = 1024  # codes of a row that are widened at a time: some rows fit the first cache


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Where the codes of a product's row lie, and a panel's weights.

    Attributes:
        runs: runs of codes along two axes; each is read as a stream.
        whole: steps of a run that read whole groups of codes.
        tail: codes after them.
        run_steps: steps of a run in the packed weights.
        stored: weights of a vector's step that exist; None: all.
        flip: codes are stored in the other view (signed or unsigned) than the product reads.
        streams: places in memory that a panel's weights are read from at once.
        fetches: weights are fetched one panel ahead.
        in_pieces: an epilogue among products is cut into pieces of a few vectors.
    """

    product: PanelProduct
    whole: int
    tail: int
    flip: bool
    runs: tuple[int, int] = (1, 1)
    run_steps: int = 0
    stored: int | None = None
    streams: int = 1
    fetches: bool = True
    in_pieces: bool = False

    @abstractmethod
    def corner(self, b: Builder, row: Index) -> list[Index]:
        """Where the codes of a row begin."""

    def tap(self, b: Builder, corner: Indices, h: Index, w: Index) -> list[Index]:
        """Where run (h, w) of them begins."""
        return list(corner)

    def sample(self, b: Builder, row: Index) -> Index:
        """What operands by row are indexed with."""
        return row


@dataclass(frozen=True)
class Place:
    """Which part of a product a panel is.

    Attributes:
        rows: of the product, all of them.
        row, column, panel: first row, first column, number in the packed weights.
        prefix: of a batch.
        to: column of the tile where the first one is stored.
        part: of a frame.
    """

    rows: int
    row: Index
    column: Index
    panel: Index
    prefix: Indices = ()
    to: Index = 0
    part: Part | None = None


class Panel:
    """Rows from `place.row` by one panel of columns from `place.column`."""

    def __init__(
        self, source: Source, b: Builder, tensors: Values, tile: Tile, place: Place
    ) -> None:
        self.source, self.b, self.place, product = source, b, place, source.product
        self.isa, self.tile, self.prefix = product.target, tile, list(place.prefix)
        self.codes, self.weights, init, *rest = tensors
        corrections, steps = split_corrections(product, rest)
        self.vectors = range(product.tiling.vectors)
        columns = Columns(self.isa.lanes, len(self.vectors), place.column, product.span)
        self.epilogue = Epilogue(b, product.epilogue, steps, columns, place.prefix)
        self.start = Start(product, self.epilogue, init, corrections)
        self.prefetch: Prefetch | None = None

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
        """The register tiles of the first `wanted` of `block` rows, the last of which ends at the
        block's end at most.
        """
        pieces = self._turns(tall) * (len(self._pieces) if self.source.in_pieces else 1)
        pays = pipeline.pays(self.isa, self.epilogue, self.source.whole, pieces)
        if block > tall and pays and self.isa.dot.element != "i16":  # else codes are widened first
            self._pipelined(tall, block, wanted)
            return
        with self.b.loop(0, wanted, tall, writes=[self.tile]) as loop:
            self._rows(self.b.at_most(loop.index, block - tall), tall)

    def _rows(self, first: Index, count: int) -> None:
        """One register tile: `count` rows from `first` (within the block)."""
        acc, wide = self._products(first, count), len(self.vectors)
        self._finish(first, [acc[i : i + wide] for i in range(0, count * wide, wide)])

    # Epilogues among products

    @property
    def _pieces(self) -> range:
        return pipeline.pieces(self.epilogue)

    def _turns(self, tall: int) -> int:
        """Parts of a run, each of which a row's epilogue follows."""
        return math.ceil(tall / math.prod(self.source.runs))

    def _pipelined(self, tall: int, block: int, wanted: Index) -> None:
        """The register tiles of the first `wanted` of `block` rows."""

        def products(first: Index, between: Between) -> list[ir.Value]:
            return self._products(first, tall, between)

        def finish(row: Index, accumulators: Values, vector: int) -> None:
            self._finish(row, [accumulators], vector, 1)

        cut = self._pieces
        pipeline.emit(self.b, self.isa, self.tile, tall, cut, block, wanted, products, finish)

    # Products

    def _products(self, first: Index, count: int, between: Between | None = None) -> list[ir.Value]:
        """The accumulators of a register tile, with something else between parts of a run."""
        b, source = self.b, self.source
        rows = [b.offset(self.place.row, b.offset(first, i)) for i in range(count)]
        corners = [source.corner(b, row) for row in rows]
        tile = self.prefetch.tile(first) if self.prefetch else 0
        acc, (high, wide) = self._starts(rows), source.runs
        writes = [self.tile] if between else []
        staged = self.isa.dot.element == "i16"
        with b.loop(0, high, carry=acc, writes=writes) as down:
            with b.loop(0, wide, carry=down.carried, writes=writes) as along:
                h, w = down.index, along.index
                run = b.offset(b.scaled(h, wide), w)
                starts = [source.tap(b, corner, h, w) for corner in corners]
                base = b.scaled(run, source.run_steps)

                def step(acc: list[ir.Value], k: Index) -> list[ir.Value]:
                    if self.prefetch:
                        self.prefetch.fetch(tile, b.offset(base, k))
                    return self._step(acc, starts, base, k, None)

                acc = along.carried
                if between:
                    acc = self._parts(acc, run, count, step, between)
                elif staged:
                    acc = self._staged(acc, starts, base, tile)
                else:
                    acc = self._along(acc, starts, base, step, tile)
                if source.tail and not staged:
                    acc = self._step(acc, starts, base, source.whole, source.tail)
                along.carried = acc
            down.carried = along.carried
        return down.carried

    def _along(
        self,
        acc: list[ir.Value],
        starts: Sequence[Sequence[Index]],
        base: Index,
        step: pipeline.Step,
        tile: Index,
    ) -> list[ir.Value]:
        """The whole groups of a run; several at a time where the product takes them by element."""
        b, isa, whole = self.b, self.isa, self.source.whole
        if not isa.dot.by_element:
            return pipeline.along(b, acc, 0, whole, step)
        several, rest = divmod(whole, isa.lanes)

        def together(acc: list[ir.Value], number: Index) -> list[ir.Value]:
            k, out = b.scaled(number, isa.lanes), acc
            at = b.scaled(k, isa.dot.group)
            places = [[*lead, b.offset(column, at)] for *lead, column in starts]
            rows = [dot.several(b, isa, self.codes, p, self.source.flip) for p in places]
            for lane in range(isa.lanes):
                here = b.offset(base, b.offset(k, lane))
                if self.prefetch:
                    self.prefetch.fetch(tile, here)
                weights = [self._weights(here, j) for j in self.vectors]
                out = self._multiplied(out, [row[lane] for row in rows], weights)
            return out

        acc = pipeline.along(b, acc, 0, several, together)
        return pipeline.along(b, acc, several * isa.lanes, rest, step)

    def _parts(
        self, acc: list[ir.Value], run: Index, count: int, step: pipeline.Step, between: Between
    ) -> list[ir.Value]:
        """A run in parts, each followed by a row's epilogue, or a piece of it."""
        b, turns = self.b, self._turns(count)
        cut = self._pieces if self.source.in_pieces else [None]

        def epilogue(part: Index, piece: int | None) -> None:
            between.epilogue(b.offset(b.scaled(run, turns), part), piece)

        of_run = replace(between, epilogue=epilogue)
        return pipeline.parts(b, self.tile, acc, self.source.whole, turns, cut, step, of_run)

    def _staged(
        self, acc: list[ir.Value], starts: Sequence[Indices], base: Index, tile: Index
    ) -> list[ir.Value]:
        """A run whose codes are widened first, `STAGE` of them at a time: each is read once for
        every vector, and a broadcast of what lies in memory as the product takes it costs a load.
        """
        b, group, source = self.b, self.isa.dot.group, self.source
        length = source.whole * group + source.tail
        room = math.ceil(min(length, STAGE) / group) * group
        stage = b.scratch([len(starts), room], self.isa.dot.element)

        def part(acc: list[ir.Value], number: Index, count: int) -> list[ir.Value]:
            first = b.scaled(number, STAGE)
            self._widen(starts, first, count, stage)
            begin = b.offset(base, b.scaled(number, STAGE // group))
            with b.loop(0, math.ceil(count / group), carry=acc) as loop:
                at = b.offset(begin, loop.index)
                if self.prefetch:
                    self.prefetch.fetch(tile, at)
                weights = [self._weights(at, j) for j in self.vectors]
                rows = range(len(starts))
                where = b.scaled(loop.index, group)
                staged = [dot.staged(b, self.isa, stage, [i, where]) for i in rows]
                loop.carried = self._multiplied(loop.carried, staged, weights)
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

    def _step(
        self, acc: Values, starts: Sequence[Indices], base: Index, k: Index, valid: int | None
    ) -> list[ir.Value]:
        """All products of one group of codes."""
        b, isa, source = self.b, self.isa, self.source
        weights = [self._weights(b.offset(base, k), j) for j in self.vectors]
        step, out = b.scaled(k, isa.dot.group), []
        for i, (*lead, column) in enumerate(starts):
            at = [*lead, b.offset(column, step)]
            codes = dot.codes(b, isa, self.codes, at, source.flip, valid)
            row = acc[i * len(weights) : (i + 1) * len(weights)]
            out += self._multiplied(row, [codes], weights)
        return out

    def _multiplied(self, acc: Values, codes: Values, weights: Values) -> list[ir.Value]:
        """The accumulators of some rows after a group."""
        pairs = [(w, c) if self.source.product.swapped else (c, w) for c in codes for w in weights]
        return [dot.dot(self.b, self.isa, a, *p) for a, p in zip(acc, pairs, strict=True)]

    def _weights(self, step: Index, j: int) -> ir.Value:
        """Vector `j` of a panel's step."""
        size = self.isa.lanes * self.isa.dot.group
        stream, vector = divmod(j, len(self.vectors) // self.source.streams)
        streams = [stream] if self.source.streams > 1 else []
        at = [*self.prefix, *streams, self.place.panel, step, vector * size]
        return dot.weights(self.b, self.isa, self.weights, at, self.source.stored)

    # What is before and after

    def _starts(self, rows: Indices) -> list[ir.Value]:
        """Where the accumulators of a register tile start from."""
        sums = self._row_sums(rows) if self.start.needs_sums else [None] * len(rows)
        return [
            v
            for row, total in zip(rows, sums, strict=True)
            for v in self.start.of(self.source.sample(self.b, row), total)
        ]

    def _row_sums(self, rows: Indices) -> list[ir.Value]:
        """The sum of every row's codes, in every lane; of a matrix, whose rows are one run."""
        b, isa = self.b, self.isa
        width = isa.lanes * isa.dot.group
        ones = dot.splat(b, isa, 1)

        def add(sums: Values, at: Index, valid: int) -> list[ir.Value]:
            kind = vec(width, "i8")
            codes = [b.load(self.codes, [*self.prefix, row, at], kind, valid) for row in rows]
            wide = [c if isa.dot.element == "i8" else b.extend(c, isa.dot.element) for c in codes]
            return [dot.dot(b, isa, s, ones, c) for s, c in zip(sums, wide, strict=True)]

        sums = [b.i32(0, isa.lanes)] * len(rows)
        length = self.source.whole * isa.dot.group + self.source.tail
        return [b.reduce(s, b.add) for s in b.fold(length, width, add, sums)]

    def _finish(
        self, first: Index, accumulators: Sequence[Values], vector: int = 0, chain: int = TOGETHER
    ) -> None:
        """The epilogue of rows from `first`, and of a panel's vectors from `vector`."""
        b, part, finished = self.b, self.place.part, []
        column = b.offset(self.place.to, vector * self.isa.lanes)
        for i, acc in enumerate(accumulators):
            local = b.offset(first, i)
            row = b.offset(self.place.row, local)
            to = [*([0] * len(self.prefix)), part.row(b, row) if part else local]
            finished.append(Row(acc, [row], to, [self.source.sample(b, row)], column, vector))
        self.epilogue.store(self.isa, self.tile, finished, chain)
