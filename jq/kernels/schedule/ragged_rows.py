"""The cut of rows that may be left out into workgroups, and the wanted rows of a block."""

from __future__ import annotations

import math
from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.emit.builder import Builder
from jq.kernels.emit.values import Index
from jq.kernels.schedule.sequences import Sequences

GOLDEN = 0.618


def wanted_rows(
    b: Builder, sequences: Sequences, counts: ir.Value, first: Index, rows: int
) -> Index:
    """Number of wanted rows among `rows` rows from `first` on, all of one sequence."""
    length = sequences.length
    count = b.read_index(counts, [b.divided(first, length)], length)
    return b.at_most(b.above(count, b.modulo(first, length)), rows)


@dataclass(frozen=True)
class Blocks:
    """The cut of M rows into blocks of so many, none of which has rows of two sequences.

    Threads take neighbouring workgroups. Of sequences most rows may be left out, and those that are
    not lie side by side: workgroups take their blocks in an order that scatters them.
    """

    rows: int
    block: int
    length: int
    scattered: bool

    @staticmethod
    def of(rows: int, block: int, sequences: Sequences | None) -> Blocks:
        length = sequences.length if sequences else rows
        return Blocks(rows, min(block, length), length, sequences is not None)

    @property
    def parts(self) -> int:
        """Blocks of a sequence; the last one ends where the sequence does."""
        return -(-self.length // self.block)

    @property
    def count(self) -> int:
        return self.rows // self.length * self.parts

    @property
    def _stride(self) -> int:
        """Nearly the golden section of all blocks, and coprime to them."""
        start = max(1, round(self.count * GOLDEN))
        return next(n for n in range(start, 2 * self.count + 2) if math.gcd(n, self.count) == 1)

    def first(self, b: Builder, number: Index) -> Index:
        """The first row of a workgroup's block."""
        if self.scattered:
            number = b.modulo(b.scaled(number, self._stride), self.count)
        sequence = b.scaled(b.divided(number, self.parts), self.length)
        part = b.scaled(b.modulo(number, self.parts), self.block)
        return b.offset(sequence, b.at_most(part, self.length - self.block))
