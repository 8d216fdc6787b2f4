"""Register tiles one after the other, the epilogue of each among the products of the next.

    for tile in 0 .. and one more:
      for row in tile:                       # a loop, so that code stays small
        some products of the tile            # none after the last
        if tile > 0: epilogue(row of the tile before)

A processor looks ahead too little to begin with a tile's products while the last one's epilogue is
under way, but far enough for a piece of it. Accumulators wait on the stack."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.emit.values import Index, vec
from jq.kernels.gemm.panel import Panel, Run

MANY_REGISTERS = 32
PIECE, LONG = 4, 2  # vectors of an epilogue between two parts of the products; with a long step
SHORTEST = 4  # steps of a part, at least


@dataclass(frozen=True)
class Before:
    """The tile before one: its first row, its rows (0 in front of the first tile), its accumulators
    on the stack; and 1 where there is a tile after it, else 0."""

    first: Index
    rows: Index
    held: ir.Value
    tiles: Index


class PipelinedPanel(Panel):
    """A `Panel`, where it pays with epilogues among products."""

    before: Before | None = None

    def _tiles(self, tall: int, block: int, wanted: Index) -> None:
        self.tall, self.turns = tall, math.ceil(tall / math.prod(self.source.runs))
        if block <= tall or not self._pays():
            super()._tiles(tall, block, wanted)
            return
        b, self.among = self.b, [self.tile]
        held = b.scratch([tall * len(self.vectors), self.isa.lanes], self.isa.dot.result)
        behind = b.scaled(b.divided(b.offset(wanted, tall - 1), tall), tall)
        with b.loop(0, b.offset(behind, 1), tall, writes=[self.tile]) as loop:
            first = b.at_most(b.above(loop.index, tall), block - tall)
            rows = b.at_most(loop.index, tall)
            more = b.at_most(b.above(behind, loop.index), 1)
            self.before = Before(first, rows, held, more)
            acc = self._products(b.at_most(loop.index, block - tall), tall)
            for i, value in enumerate(acc):
                b.put(value, held, [i, 0])
        self.before, self.among = None, []

    def _pays(self) -> bool:
        """True if the products are long enough for an epilogue, and that is more than a
        multiplication and a store."""
        worth = self.epilogue.packs(self.isa) or self.epilogue.long
        long = self.source.whole >= SHORTEST * self.turns * len(self._cut)
        plain = not self.staged and self.source.product.code_operands == 1
        return worth and long and self.isa.registers >= MANY_REGISTERS and plain

    @property
    def _pieces(self) -> range:
        """Starts of the pieces of a row."""
        return range(0, len(self.vectors), LONG if self.epilogue.long else PIECE)

    @property
    def _cut(self) -> Sequence[int | None]:
        """The pieces of a row that follow parts of the products; [None]: all of it at once."""
        return self._pieces if self.source.in_pieces else [None]

    def _groups(self, acc: list[ir.Value], run: Run) -> list[ir.Value]:
        """The groups, in some turns with each piece of an epilogue behind a part of them."""
        if self.before is None:
            return super()._groups(acc, run)
        b, cut, before = self.b, self._cut, self.before
        size = self.source.whole // (self.turns * len(cut))
        with b.loop(0, self.turns, carry=acc, writes=[self.tile]) as loop:
            for i, piece in enumerate(cut):
                part = b.offset(b.scaled(loop.index, len(cut)), i)
                count = b.scaled(before.tiles, size)
                loop.carried = self._along(loop.carried, run, b.scaled(part, size), count)
                row = b.offset(b.scaled(run.number, self.turns), loop.index)
                with b.loop(0, b.at_most(b.above(before.rows, row), 1), writes=[self.tile]):
                    self._epilogue(before, b.at_most(row, self.tall - 1), piece)
        done = size * self.turns * len(cut)
        rest = b.scaled(before.tiles, self.source.whole - done)
        return self._along(loop.carried, run, done, rest)

    def _epilogue(self, before: Before, row: Index, piece: int | None) -> None:
        b, pieces, wide = self.b, self._pieces, len(self.vectors)
        at = b.scaled(row, wide)
        for start in pieces if piece is None else [piece]:
            some = [b.offset(at, v) for v in self.vectors[start : start + pieces.step]]
            kind = vec(self.isa.lanes, self.isa.dot.result)
            values = [b.get(before.held, [i, 0], kind) for i in some]
            self._finish(b.offset(before.first, row), [values], start, 1)
