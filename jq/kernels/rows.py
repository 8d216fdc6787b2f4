"""What kernels over the rows of a matrix share: rows cut into blocks, and a row into vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from iree.compiler import ir

from jq.kernels.builder import Builder, Tile
from jq.kernels.dispatch import Output, dispatch
from jq.kernels.tensor import TensorType
from jq.kernels.values import Index

BLOCKS = 16  # workgroups at most
MIN_ELEMENTS = 1 << 14  # less is not worth a workgroup of its own


def row_block(rows: int, columns: int) -> int:
    """Rows of a workgroup."""
    blocks = min(BLOCKS, rows, max(1, rows * columns // MIN_ELEMENTS))
    return math.ceil(rows / (blocks + blocks % 2 if 1 < blocks < rows else blocks))


def row_dispatch(
    operands: Sequence[tuple[ir.Value, TensorType]],
    results: Sequence[TensorType],
    body: Callable[
        [Builder, Sequence[ir.Value], Sequence[Tile], Sequence[Index], Sequence[Index]], None
    ],
    block: int,
    together: int = 1,
) -> list[ir.Value]:
    """A dispatch whose results have the rows as first axis.

    `body(builder, tensors, tiles, rows, local)` emits the work of `together` rows: `rows` count
    from the start of the operands, `local` from that of the tiles. The last block ends at the last
    row: rows that two blocks share are computed twice, with the same bits.
    """
    rows = results[0].shape[0]

    def first(b: Builder, ids: Sequence[Index]) -> Index:
        return b.at_most(b.scaled(ids[0], block), rows - block)

    def output(kind: TensorType) -> Output:
        rest = kind.shape[1:]
        return Output(kind, (block, *rest), lambda b, ids: [first(b, ids), *([0] * len(rest))])

    def workgroup(
        b: Builder, ids: Sequence[Index], tensors: Sequence[ir.Value], tiles: Sequence[Tile]
    ) -> None:
        start = first(b, ids)
        with b.loop(0, block, together, writes=tiles) as loop:
            base = b.at_most(loop.index, block - together)
            local = [b.offset(base, i) for i in range(together)]
            body(b, tensors, tiles, [b.offset(start, row) for row in local], local)

    return dispatch(
        operands, [output(kind) for kind in results], [math.ceil(rows / block)], workgroup
    )


def over_row(
    b: Builder,
    columns: int,
    lanes: int,
    unroll: int,
    body: Callable[[list[Index], int | None, list[list[ir.Value]]], list[list[ir.Value]]],
    carry: Sequence[ir.Value] = (),
    writes: Sequence[Tile] = (),
) -> list[list[ir.Value]]:
    """Runs `body(columns, valid, states)` over a row, `unroll` vectors at a time.

    Every vector of a chunk has its own state (a copy of `carry` to begin with), so that chains of
    dependent operations overlap. `valid` is None but for the last, partial vector. Returns the
    states, to be joined.
    """
    states = [list(carry) for _ in range(unroll)]
    width = unroll * lanes
    whole = columns // width * width
    if whole:
        flat = [v for state in states for v in state]
        with b.loop(0, whole, width, carry=flat, writes=writes) as loop:
            at = [b.offset(loop.index, u * lanes) for u in range(unroll)]
            loop.carried = [v for s in body(at, None, split(loop.carried, unroll)) for v in s]
        states = split(loop.carried, unroll)
    for column in range(whole, columns, lanes):
        valid = columns - column if columns - column < lanes else None
        states[:1] = body([column], valid, states[:1])
    return states


def split(values: Sequence[ir.Value], parts: int) -> list[list[ir.Value]]:
    """`parts` lists of as many values each, in order."""
    size = len(values) // parts
    return [list(values[i * size : (i + 1) * size]) for i in range(parts)]
