"""Common parts of kernels over a matrix's rows: blocks of rows, and vectors of a row."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.emit import Builder, Output, Tile, Tiles, dispatch
from jq.kernels.emit.values import Index, Indices, Values, lanes_of, vec
from jq.kernels.schedule.layout import Sequences
from jq.kernels.tensor import TensorType

GOLDEN = 0.618


def wanted_rows(
    b: Builder, sequences: Sequences | None, tensors: Values, first: Index, rows: int
) -> tuple[Values, Index]:
    """The operands without the counts of `sequences`, which are the last one; and the number of
    wanted rows among `rows` rows from `first` on, all of one sequence."""
    if sequences is None:
        return tensors, rows
    *others, counts = tensors
    length = sequences.length
    count = b.read_index(counts, [b.divided(first, length)], length)
    return others, b.at_most(b.above(count, b.modulo(first, length)), rows)


@dataclass(frozen=True)
class Blocks:
    """The cut of M rows into blocks of so many, none of which has rows of two sequences. Threads
    take neighbouring workgroups. Of sequences most rows may be left out, and those that are not lie
    side by side: workgroups take their blocks in an order that scatters them."""

    rows: int
    block: int
    length: int
    scattered: bool

    @staticmethod
    def of(rows: int, block: int, sequences: Sequences | None) -> "Blocks":
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
        return b.offset(sequence, b.part(b.modulo(number, self.parts), self.block, self.length))


UNROLL = 4  # vectors of a row side by side
States = list[list[ir.Value]]
FILL = 64  # elements that are made 0 at a time


@dataclass(frozen=True)
class Rows:
    """Rows that are computed together: where they are (from the start of the operands), where they
    go (from that of the tiles), and how many of them are wanted."""

    at: Indices
    to: Indices
    wanted: Index


def row_dispatch(
    operands: Sequence[tuple[ir.Value, TensorType]],
    results: Sequence[TensorType],
    body: Callable[[Builder, Values, Tiles, Rows], None],
    block: int,
    together: int = 1,
    sequences: Sequences | None = None,
) -> list[ir.Value]:
    """A dispatch whose results have the rows as first axis.
    `body(builder, tensors, tiles, rows)` emits the work of `together` rows. The last block ends at
    the last row: rows that two blocks share are computed twice, with the same bits. With
    `sequences` the last operand says which rows are wanted; the body does not see it."""
    blocks = Blocks.of(results[0].shape[0], block, sequences)
    block, together = blocks.block, min(together, blocks.block)

    def output(kind: TensorType) -> Output:
        rest = kind.shape[1:]
        where = [0] * len(rest)
        return Output(kind, (block, *rest), lambda b, ids: [blocks.first(b, ids[0]), *where])

    def workgroup(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        start = blocks.first(b, ids[0])
        tensors, wanted = wanted_rows(b, sequences, tensors, start, block)
        with b.loop(0, wanted, together, writes=tiles) as loop:
            base = b.at_most(loop.index, block - together)
            local = [b.offset(base, i) for i in range(together)]
            at = [b.offset(start, row) for row in local]
            body(b, tensors, tiles, Rows(at, local, b.at_most(b.above(wanted, base), together)))
        if sequences is not None and sequences.fill:
            for tile, kind in zip(tiles, results, strict=True):
                if len(kind.shape) > 1:
                    fill(b, tile, kind, wanted, block)

    return dispatch(operands, [output(kind) for kind in results], [blocks.count], workgroup)


def fill(b: Builder, tile: Tile, kind: TensorType, first: Index, end: Index) -> None:
    """Zeros in the rows of a tile from `first` up to `end`; rows are the last axis but one."""
    *lead, rows, columns = tile.shape
    vector = b.constant(vec(min(columns, FILL), kind.element), 0)
    with b.loop(0, b.above(end, first), writes=[tile]) as loop:
        row = b.at_most(b.offset(first, loop.index), rows - 1)
        with b.loop(0, columns, lanes_of(vector), writes=[tile]) as inner:
            column = b.at_most(inner.index, columns - lanes_of(vector))
            b.store(vector, tile, [*([0] * len(lead)), row, column])


def over_row(
    b: Builder,
    columns: int,
    lanes: int,
    body: Callable[[list[Index], int | None, States], States],
    carry: Values = (),
    writes: Tiles = (),
) -> States:
    """Runs `body(columns, valid, states)` over a row, `UNROLL` vectors at a time. Every vector of a
    chunk has its own state (at first `carry`), so that chains of dependent operations overlap.
    `valid` is None but for the last, partial vector. States are returned to be joined."""
    states = [list(carry) for _ in range(UNROLL)]
    width = UNROLL * lanes
    whole = columns // width * width
    if whole:
        flat = [v for state in states for v in state]
        with b.loop(0, whole, width, carry=flat, writes=writes) as loop:
            at = [b.offset(loop.index, u * lanes) for u in range(UNROLL)]
            loop.carried = [v for s in body(at, None, split(loop.carried, UNROLL)) for v in s]
        states = split(loop.carried, UNROLL)
    for column in range(whole, columns, lanes):
        valid = columns - column if columns - column < lanes else None
        states[:1] = body([column], valid, states[:1])
    return states


def split(values: Values, parts: int) -> list[list[ir.Value]]:
    """`parts` lists of as many values each, in order."""
    size = len(values) // parts
    return [list(values[i * size : (i + 1) * size]) for i in range(parts)]
