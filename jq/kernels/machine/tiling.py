"""The cut of a product's rows and columns into register tiles, and into workgroups.

A register tile is `rows x vectors` accumulators. One step along K (one group of products) costs

    max(rows * vectors / dot_rate, (rows + vectors) / load_rate, fetch * vectors, dot_latency)

cycles, and a cut of M x N costs the sum over its tiles. Weights that the second cache does not hold
come from memory in the first tile of a panel, which waits for them: less where a step reads more
lines side by side. With few rows that decides. A tile with more rows than the first cache holds
lines of, where K is a power of two, counts twice.

`choose` takes the cheapest cut whose tile fits the registers. Of equal ones, where registers are
many, it takes one that multiplies three vectors or more by a code that was broadcast: 7 % faster
than two on an Intel Xeon, the same on Zen 4 and 5; in LLVM's model of Zen 4 a broadcast takes a
slot of those that multiply. Then it takes one whose rows come out even. Columns are cut into panels
of `vectors` vectors, rows into equal blocks; where a panel or a block does not divide its axis, the
last one is moved back to end at the edge: it computes some results a second time, with the same
bits, and nothing is masked or padded."""

import math
from dataclasses import dataclass
from functools import lru_cache

from jq.kernels.machine.isa import Isa

MAX_VECTORS, MANY_REGISTERS = 12, 32
MAX_ROWS = 12  # where vectors are many: general registers hold no more addresses of rows
SPILLS = 0.01
APART = 2  # products that wait to be added: with one register for them, accumulators are spilled
SHARING = 3  # vectors that share a broadcast: more of them gain nothing
UNEVEN = 0.1  # what an uneven share of workgroups costs, of the time that threads lose
LINE, SHARED = 64, 0.02  # bytes of a cache line
MIN_CYCLES = 1 << 13  # less work than this is not worth a workgroup of its own


@dataclass(frozen=True)
class Tiling:
    """Attributes:
    rows, vectors: the register tile.
    panels: panels along N, each `vectors * lanes` columns.
    block: rows of a workgroup; `blocks` of them cover M."""

    rows: int
    vectors: int
    panels: int
    block: int
    blocks: int
    cycles: float


@lru_cache(maxsize=4096)
def choose(isa: Isa, m: int, k: int, n: int, result_bytes: int = 4) -> Tiling:
    """The cheapest cut of an m x k x n product whose results take so many bytes each."""
    many = isa.registers >= MANY_REGISTERS and not isa.dot.by_element
    widest, longest = max(1, n // isa.lanes), MAX_ROWS if many else isa.registers
    candidates = [
        cut(isa, rows, vectors, m, k, n)
        for vectors in range(1, min(widest, MAX_VECTORS) + 1)
        for rows in range(1, min(m, longest) + 1)
        if _registers(isa, rows, vectors) <= isa.registers
    ]

    def rank(t: Tiling) -> tuple[float, int, bool, int]:
        shared = min(t.vectors, SHARING) if many else 0
        return _cost(isa, t, n, result_bytes), -shared, t.block % t.rows > 0, -t.rows

    return min(candidates, key=rank)


def tiles(block: int, rows: int) -> tuple[int, int]:
    """Number of rows of a block that whole register tiles cover, and of those left. Where more than
    half a tile would be, the last one is moved back: a tile of its own is as much code again."""
    rest = block % rows
    return (block, 0) if block >= rows and 2 * rest > rows else (block - rest, rest)


def even_rows(isa: Isa, vectors: int, length: int) -> int:
    """Rows of the cheapest register tile for sequences of so many rows, the last tile of which is
    moved back to end at the edge."""
    free = isa.registers - _spare(isa)
    fits = [rows for rows in range(1, length + 1) if _registers(isa, rows, vectors) <= free]
    return min(fits or [1], key=lambda n: (math.ceil(length / n) * _step(isa, n, vectors), -n))


def _cost(isa: Isa, t: Tiling, n: int, result_bytes: int) -> float:
    """Cycles; accumulators that leave few registers to an epilogue are spilled around it, several
    threads wait for that with most workgroups, and lines of two panels move between caches."""
    crowded = _registers(isa, t.rows, t.vectors) > isa.registers - _spare(isa)
    uneven = unevenness(t.panels * t.blocks)
    width = t.vectors * isa.lanes
    shared = width < n and width * result_bytes % LINE > 0
    return t.cycles * (1 + SPILLS * crowded + UNEVEN * uneven + SHARED * shared)


def _spare(isa: Isa) -> int:
    """Registers that an epilogue needs besides the accumulators: it was measured that 28 of 32 may
    be taken, and that more are slower."""
    return 4 if isa.registers >= 32 else 6


def _registers(isa: Isa, rows: int, vectors: int) -> int:
    """Accumulators, the weights of a step, one register of activations (one a row where products
    take them by element), and `APART` of products where an own instruction adds them."""
    codes = rows if isa.dot.by_element else 1
    return rows * vectors + vectors + codes + APART * (not isa.dot.accumulates)


def cut(isa: Isa, rows: int, vectors: int, m: int, k: int, n: int) -> Tiling:
    """An m x k x n product in register tiles of that size."""
    panels = math.ceil(n / (vectors * isa.lanes))
    block, blocks = _row_blocks(isa, m, rows, panels, k * vectors * isa.lanes)
    steps = math.ceil(k / isa.dot.group) + 8  # a tile's start and end cost about 8 steps
    full, rest = divmod(block, rows)
    one = _step(isa, rows, vectors)
    cycles = full * one + (_step(isa, rest, vectors) if rest else 0)
    if k * n > isa.memory.second_cache:
        # Cycles until weights are there from memory: lines of one step come side by side, and more
        # rows in between leave fewer steps under way at once.
        lines = vectors * isa.lanes * isa.dot.group / LINE
        wait = isa.memory.wait_line * lines + isa.memory.wait_row * rows
        cycles += max(0.0, wait - one)
    size = isa.memory.set_bytes  # rows of a power of two codes meet in few sets of the first cache
    if rows > isa.memory.ways * size // max(LINE, math.gcd(k, size)):
        cycles *= 2
    return Tiling(rows, vectors, panels, block, blocks, cycles * steps * panels * blocks)


def _step(isa: Isa, rows: int, vectors: int) -> float:
    return max(
        rows * vectors / isa.dot_rate,
        (rows / (isa.lanes if isa.dot.by_element else 1) + vectors) / isa.load_rate,
        vectors * isa.memory.fetch,
        float(isa.dot_latency),
    )


def _row_blocks(isa: Isa, m: int, rows: int, panels: int, products_per_row: int) -> tuple[int, int]:
    """Rows of a workgroup (whole register tiles), and how many workgroups cover m rows."""
    affordable = max(1, int(m * products_per_row / (isa.macs * MIN_CYCLES)))
    tiles = math.ceil(m / rows)
    blocks = parts(panels, min(affordable, tiles))
    block = min(m, math.ceil(tiles / blocks) * rows)
    return block, math.ceil(m / block)


CHUNK, ENOUGH = 8, 8  # workgroups that a thread takes at once, and that keep a few busy
# Workgroups of a kernel over rows, at most; and elements: less is not worth one of its own.
BLOCKS, MIN_ELEMENTS = 16, 1 << 14


def unevenness(count: int, threads: int = 2) -> float:
    """The largest share of a thread over the mean one, less 1."""
    chunk = 1 if count < CHUNK * threads else CHUNK
    rounds, rest = divmod(count, chunk * threads)
    return (rounds * chunk + min(rest, chunk)) * threads / count - 1


def parts(fixed: int, most: int, cost: float = 0.0) -> int:
    """Into how many parts (1 to `most`) each of `fixed` workgroups is best cut further. Where each
    of them costs this share of the whole work besides, as a mean of one and of two threads."""
    wanted = max(CHUNK, 1 + math.ceil(2 * ENOUGH / fixed))
    options = range(1, max(1, min(most, wanted)) + 1)

    def time(n: int) -> float:
        uneven = unevenness(fixed * n)
        return (1 + cost * n) * (1 + uneven / 2) if cost else uneven

    return min(options, key=lambda n: (max(0, ENOUGH - fixed * n), time(n), n))


def row_block(rows: int, columns: int) -> int:
    """Rows of a workgroup of a kernel over the rows of a matrix."""
    blocks = min(BLOCKS, rows, max(1, rows * columns // MIN_ELEMENTS))
    return math.ceil(rows / (blocks + blocks % 2 if 1 < blocks < rows else blocks))
