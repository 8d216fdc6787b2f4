"""Register tiles one behind the other, the epilogue of each among the products of the next.

    for tile in 0 .. and one more:
      for row in tile:                       # a loop, so that code stays small
        some products of the tile            # none behind the last
        if tile > 0: epilogue(row of the tile before)

A processor looks ahead too little to begin with a tile's products while the last one's epilogue is
under way, but far enough for a piece of it. Accumulators wait on the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.build.builder import Builder, Tile
from jq.kernels.build.values import Index, Values, vec
from jq.kernels.epilogue.emission import Epilogue
from jq.kernels.machine.isa import Isa

MANY_REGISTERS = 32
PIECE, LONG = 4, 2  # vectors of an epilogue between two parts of the products; with a long step
SHORTEST = 4  # steps of a part, at least

Step = Callable[[list[ir.Value], Index], list[ir.Value]]  # accumulators after step k


@dataclass(frozen=True)
class Between:
    """What stands between the parts of a tile's products.

    Attributes:
        epilogue: of a row of the tile before: of its piece from that vector on, or (None) all of
            it; nothing where there is no such row.
        tiles: 1 where there is a tile, 0 behind the last one.
    """

    epilogue: Callable[[Index, int | None], None]
    tiles: Index


def pieces(epilogue: Epilogue) -> range:
    """Where the pieces of a row begin."""
    return range(0, len(epilogue.columns), LONG if epilogue.long else PIECE)


def pays(isa: Isa, epilogue: Epilogue, steps: int, parts: int) -> bool:
    """Whether products of so many steps, cut into parts, are long enough for an epilogue, and that
    is more than a multiplication and a store.
    """
    worth = epilogue.packs(isa) or epilogue.long
    return worth and isa.registers >= MANY_REGISTERS and steps >= SHORTEST * parts


def along(
    b: Builder, acc: list[ir.Value], begin: Index, count: Index, step: Step
) -> list[ir.Value]:
    """The accumulators after so many steps along K."""
    if count == 0:
        return acc
    with b.loop(0, count, carry=acc) as loop:
        loop.carried = step(loop.carried, b.offset(begin, loop.index))
    return loop.carried


def parts(
    b: Builder,
    tile: Tile,
    acc: list[ir.Value],
    steps: int,
    turns: int,
    cut: Sequence[int | None],
    step: Step,
    between: Between,
) -> list[ir.Value]:
    """The accumulators after all steps; in each of some turns, `between` of each piece follows a
    part of them.
    """
    size = steps // (turns * len(cut))
    with b.loop(0, turns, carry=acc, writes=[tile]) as loop:
        for i, piece in enumerate(cut):
            part = b.offset(b.scaled(loop.index, len(cut)), i)
            count = b.scaled(between.tiles, size)
            loop.carried = along(b, loop.carried, b.scaled(part, size), count, step)
            between.epilogue(loop.index, piece)
    done = size * turns * len(cut)
    return along(b, loop.carried, done, b.scaled(between.tiles, steps - done), step)


def emit(
    b: Builder,
    isa: Isa,
    tile: Tile,
    tall: int,
    cut: range,
    block: int,
    wanted: Index,
    products: Callable[[Index, Between], Values],
    finish: Callable[[Index, Values, int], None],
) -> None:
    """Tiles of `tall` rows: the first `wanted` (0 to all) of `block` rows, the last of which ends
    at the block's end at most.

    `cut` are a row's `pieces`. `products(first, between)` gives the accumulators of the tile at a
    row, `finish(row, accumulators, vector)` does the epilogue of a row from that vector on.
    """
    vectors = range(cut.stop)
    held = b.scratch([tall * cut.stop, isa.lanes], "i32")

    def epilogue(first: Index, row: Index, piece: int | None) -> None:
        at = b.scaled(row, cut.stop)
        for start in cut if piece is None else [piece]:
            some = [b.offset(at, v) for v in vectors[start : start + cut.step]]
            values = [b.get(held, [i, 0], vec(isa.lanes, "i32")) for i in some]
            finish(b.offset(first, row), values, start)

    behind = b.scaled(b.divided(b.offset(wanted, tall - 1), tall), tall)
    with b.loop(0, b.offset(behind, 1), tall, writes=[tile]) as loop:
        before = b.at_most(b.above(loop.index, tall), block - tall)
        rows = b.at_most(loop.index, tall)

        def epilogues(row: Index, piece: int | None) -> None:
            with b.loop(0, b.at_most(b.above(rows, row), 1), writes=[tile]):
                epilogue(before, b.at_most(row, tall - 1), piece)

        between = Between(epilogues, b.at_most(b.above(behind, loop.index), 1))
        for i, value in enumerate(products(b.at_most(loop.index, block - tall), between)):
            b.put(value, held, [i, 0])
