"""The cut of a product for matrix tiles, and the layout of its weights in them."""

import math
from dataclasses import dataclass

import numpy as np

from jq.kernels.tensor import Array, cut_last, join_last

ROWS, WORDS = 16, 256  # rows of a tile, 32-bit words of a tile
DEPTH = 64  # codes along K of a tile; half as many of two bytes
LINE, SHORT = 64, 4  # columns of a panel where K has at most so many tiles
KEPT = 16 << 10  # bytes of weights in the first cache
WORKGROUPS = 16
MANY, SECOND = 128, 768 << 10  # rows, and bytes of weights in the second cache
BLOCK = 256  # rows of a workgroup at most: its codes stay in cache


@dataclass(frozen=True)
class TiledCut:
    """m x k x n in blocks of rows and ranges of columns; `group` operands fill a word. `together`:
    rows that lie in memory at even distances, of which tiles are made."""

    m: int
    k: int
    n: int
    group: int = 4
    together: int = 0

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return self.together or math.ceil(self.m / math.ceil(self.m / ROWS))

    @property
    def depth(self) -> int:
        """Operands along K of a tile."""
        return DEPTH // 4 * self.group

    @property
    def chunks(self) -> int:
        return math.ceil(self.k / self.depth)

    @property
    def short(self) -> bool:
        """True if results take longer to store than to multiply: they are stored by lines."""
        return self.n % LINE == 0 and self.chunks <= SHORT

    @property
    def whole(self) -> bool:
        """True if a workgroup multiplies few rows, which the first cache keeps, by all columns,
        which the second keeps."""
        return not self.short and self.m >= MANY and self.k * self.n * 4 // self.group <= SECOND

    @property
    def vectors(self) -> int:
        """Tiles of columns in a panel."""
        return LINE // ROWS if self.short else 2 if self.n >= 2 * ROWS else 1

    @property
    def tall(self) -> int:
        """Tiles of rows that are multiplied at once."""
        return 1 if self.short else min(2, self.row_tiles)

    @property
    def width(self) -> int:
        return self.vectors * ROWS

    @property
    def block(self) -> int:
        """Rows of a workgroup."""
        pairs = math.ceil(self.m / (2 * self.rows))
        panels = math.ceil(self.n / self.width)
        blocks = max(math.ceil(self.m / BLOCK), min(pairs, math.ceil(WORKGROUPS / panels)))
        blocks = pairs if self.whole else blocks
        return min(self.m, math.ceil(pairs / blocks) * 2 * self.rows)

    @property
    def blocks(self) -> int:
        return math.ceil(self.m / self.block)

    @property
    def row_tiles(self) -> int:
        """Tiles of rows in a block."""
        return math.ceil(self.block / self.rows)

    @property
    def panels(self) -> int:
        """Panels of a workgroup."""
        count = math.ceil(self.n / self.width)
        kept = KEPT // (self.chunks * self.width * DEPTH) if self.short else 1
        few = count if self.whole else min(kept, count * self.blocks // (WORKGROUPS // 2))
        most = max(1, few, count * self.blocks // (2 * WORKGROUPS))
        return max(p for p in range(1, count + 1) if count % p == 0 and p <= most)

    @property
    def range(self) -> int:
        """Columns of a workgroup."""
        return min(self.n, self.panels * self.width)

    @property
    def ranges(self) -> int:
        return math.ceil(self.n / self.range)

    @property
    def rows_type(self) -> tuple[int, ...]:
        return (self.blocks * self.row_tiles, self.chunks, WORDS)

    @property
    def weights_type(self) -> tuple[int, ...]:
        return (self.ranges * self.panels * self.vectors, self.chunks, WORDS)


def pack_weight(cut: TiledCut, weight: Array) -> Array:
    """i8 [K, N] -> i32 [panels * vectors, K / 64, 256]: a tile holds 16 groups of 4 along K; i16
    likewise, in groups of 2."""
    padded = np.pad(weight, ((0, cut.chunks * cut.depth - cut.k), (0, max(0, cut.width - cut.n))))
    ranges = cut_last(padded, cut.ranges, max(cut.range, cut.width))
    panels = cut_last(ranges, cut.panels, cut.width).swapaxes(0, 1)
    shaped = panels.reshape(-1, cut.chunks, DEPTH // 4, cut.group, cut.vectors, ROWS)
    ordered = np.ascontiguousarray(shaped.transpose(0, 4, 1, 2, 5, 3))
    return ordered.view(np.int32).reshape(cut.weights_type)


def unpack_weight(cut: TiledCut, packed: Array) -> Array:
    """The [K, N] that `pack_weight` took."""
    codes = np.ascontiguousarray(packed).view(np.int8 if cut.group == 4 else np.int16)
    tiles = codes.reshape(-1, cut.vectors, cut.chunks, DEPTH // 4, ROWS, cut.group)
    panels = tiles.transpose(0, 2, 3, 5, 1, 4).reshape(-1, cut.chunks * cut.depth, cut.width)
    ranges = panels.reshape(cut.ranges, cut.panels, *panels.shape[1:])
    wide = max(cut.range, cut.width)
    joined: list[Array] = [join_last(list(parts), wide) for parts in ranges]
    return np.ascontiguousarray(join_last(joined, max(cut.n, wide))[: cut.k, : cut.n])
