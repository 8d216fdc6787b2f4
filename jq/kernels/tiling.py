"""How a product's rows and columns are cut: into register tiles, and into workgroups.

A register tile is `rows x vectors` accumulators. One step along K (one group of products) costs

    max(rows * vectors / dot_rate, (rows + vectors) / load_rate, dot_latency)  cycles

and a cut of M x N costs the sum over its tiles. `choose` takes the cheapest cut whose tile fits
the registers, of equal ones one whose rows come out even. Columns are cut into panels of `vectors`
vectors, rows into equal blocks; where a panel or a block does not divide its axis, the last one is
moved back to end at the edge: it computes some results a second time, with the same bits, and
nothing is masked or padded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from jq.kernels.isa import Isa

MAX_VECTORS = 12
WORKGROUPS = 16  # enough to share evenly among a few threads
EPILOGUE_REGISTERS, SPILLS = 6, 0.01
MIN_PRODUCTS = 1 << 20  # less work than this is not worth a workgroup of its own


@dataclass(frozen=True)
class Tiling:
    """Attributes:
    rows, vectors: the register tile.
    panels: panels along N, each `vectors * lanes` columns.
    block: rows of a workgroup; `blocks` of them cover M.
    """

    rows: int
    vectors: int
    panels: int
    block: int
    blocks: int
    cycles: float


@lru_cache(maxsize=4096)
def choose(isa: Isa, m: int, k: int, n: int) -> Tiling:
    """The cheapest cut of an m x k x n product."""
    widest = max(1, n // isa.lanes)
    candidates = [
        cut(isa, rows, vectors, m, k, n)
        for vectors in range(1, min(widest, MAX_VECTORS) + 1)
        for rows in range(1, m + 1)
        if _registers(rows, vectors) <= isa.registers
    ]
    return min(candidates, key=lambda t: (_with_epilogue(isa, t), t.block % t.rows > 0, -t.rows))


def _with_epilogue(isa: Isa, t: Tiling) -> float:
    """Cycles; accumulators that leave few registers to an epilogue are spilled around it."""
    crowded = _registers(t.rows, t.vectors) > isa.registers - EPILOGUE_REGISTERS
    return t.cycles * (1 + SPILLS if crowded else 1)


def _registers(rows: int, vectors: int) -> int:
    """Accumulators, the weights of a step, and one register of activations."""
    return rows * vectors + vectors + 1


def cut(isa: Isa, rows: int, vectors: int, m: int, k: int, n: int) -> Tiling:
    """An m x k x n product in register tiles of that size."""
    panels = math.ceil(n / (vectors * isa.lanes))
    block, blocks = _row_blocks(m, rows, panels, k * vectors * isa.lanes)
    steps = math.ceil(k / isa.dot.group) + 8  # a tile's start and end cost about 8 steps
    full, rest = divmod(block, rows)
    cycles = full * _step(isa, rows, vectors) + (_step(isa, rest, vectors) if rest else 0)
    return Tiling(rows, vectors, panels, block, blocks, cycles * steps * panels * blocks)


def _step(isa: Isa, rows: int, vectors: int) -> float:
    return max(
        rows * vectors / isa.dot_rate,
        (rows + vectors) / isa.load_rate,
        float(isa.dot_latency),
    )


def _row_blocks(m: int, rows: int, panels: int, products_per_row: int) -> tuple[int, int]:
    """Rows of a workgroup (whole register tiles), and how many workgroups cover m rows."""
    wanted = math.ceil(WORKGROUPS / panels)
    affordable = max(1, m * products_per_row // MIN_PRODUCTS)
    tiles = math.ceil(m / rows)
    blocks = max(1, min(wanted, affordable, tiles))
    block = min(m, math.ceil(tiles / blocks) * rows)
    return block, math.ceil(m / block)
