"""Block-scaled weights of a product: how they are cut into panels and shared by workgroups."""

import math
from functools import cached_property
from itertools import accumulate

from jq.kernels.gemv.layout import PLANES, Layout
from jq.kernels.kernel import MatrixProduct
from jq.kernels.machine.isa import Isa
from jq.kernels.machine.tiling import ENOUGH, parts, unevenness
from jq.kernels.tensor import TensorType

MAX_ROWS, MANY_ROWS = 4, 8
STAGE = 96 << 10  # bytes of a tile's codes, widened
DECODED, DECODED_ROWS = 512, 16  # codes of a decoded column at most; rows that are worth it
RUN, LONGEST_RUN = 8, 1024  # blocks whose integers are scaled together, and their codes at most
BLOCK_ROWS = 32  # rows of a workgroup at least, where columns alone are too few workgroups
DECODING = 4  # rows whose products take as long as their weights' way out of the planes
MOST_ROWS = 512  # of a workgroup at most, where their sums lie on the stack
PANEL, COLUMNS = 2, 8  # vectors of a panel, and of all panels of a workgroup


class Stored(MatrixProduct, shared=True):
    """A product [M, K] x [K, N] with block-scaled weights: how they are cut.

    Attributes:
        bits: 2 to 6, or 8.
        block: weights along K that share a scale; the last block may be partial.
        per_block: activations have a scale per block, not per row.
        digits: of a number of the activations, 1 to 3.
        zero: weights are `scale * (code - zero)`, up to 4 bits, codes and zero points from 0.
        minimum: weights are `scale * code + minimum` with codes from 0 (below 8 bits), else
            `scale * code` with signed codes.
        scale: stored type of scale and minimum: `f16`, `f32`, or `i8`, integers to be multiplied
            by an f16 factor that `outer` blocks share; `column`: one for all blocks, an operand.
        stack: weights [stack, K, N] of which each of `tiles` equal parts of the rows takes one; 0
            for one weight."""

    bits: int = 4
    block: int = 32
    per_block: bool = True
    digits: int = 1
    zero: bool = False
    minimum: bool = False
    scale: str = "f32"
    outer: int = 0
    stack: int = 0
    tiles: int = 1

    @property
    def height(self) -> int:
        """Rows that one weight multiplies."""
        return self.m // self.tiles

    @cached_property
    def unit(self) -> Isa:
        """The instruction set, with the product that weights of so many bits take."""
        return self.target.for_bits(self.bits)

    @property
    def blocks(self) -> int:
        return math.ceil(self.k / self.block)

    @property
    def rows(self) -> int:
        """Rows of a register tile. Of many rows more share the weights that are taken out of their
        planes, where codes wait in memory as the product takes them (`staged`)."""
        if self.tiled:
            return 16
        if self.decoded:
            rows = (self.target.registers - 4) // (2 * self.vectors) - 1
            return max(3, rows // self.digits)
        if self.staged and self.height >= MANY_ROWS:
            return MANY_ROWS
        return min(self.height, max(1, MAX_ROWS // self.digits))

    @property
    def staged(self) -> bool:
        """Codes of a tile are widened before its products; a few rows at most fit the stack."""
        group = self.unit.dot.group
        fits = self.blocks * self.block * 2 * MANY_ROWS <= STAGE
        return self.unit.dot.element == "i16" and self.digits == 1 and fits and group == 2

    def fits(self, rows: int) -> int:
        """Vectors of columns that registers allow at once: for each the sum of every digit, that of
        all blocks, and a weight."""
        isa, digits = self.target, self.digits
        return (isa.registers - 2 * rows * digits - 2) // (rows * (digits + 1) + 1)

    @property
    def wide(self) -> int:
        """Vectors of columns of a workgroup, about: as many as one row goes through at once; half
        of them where that makes so few workgroups that two threads would have uneven shares. How
        weights lie does not depend on the number of rows, so that all programs share them."""
        most = max(1, min(COLUMNS, self.fits(1), self.n // self.target.lanes))
        count = math.ceil(self.n / (most * self.target.lanes))
        few = most == COLUMNS and 1 < count < ENOUGH
        return most // 2 if few and unevenness(count) else most

    @property
    def together(self) -> int:
        """Vectors that the rows of a register tile go through at once: whole panels, or one."""
        total, fits = self.streams * self.vectors, self.fits(self.rows)
        whole = range(self.vectors, total + 1, self.vectors)
        return max([1, *(n for n in whole if n <= fits and total % n == 0)])

    @property
    def vectors(self) -> int:
        """Vectors of a panel."""
        return min(PANEL, self.wide)

    @property
    def streams(self) -> int:
        """Panels of a workgroup."""
        return self.wide // self.vectors

    @property
    def width(self) -> int:
        """Columns of a workgroup."""
        return self.streams * self.vectors * self.target.lanes

    @property
    def workgroups(self) -> int:
        """Number of workgroups that share the columns."""
        return math.ceil(self.n / self.width)

    @property
    def tiled(self) -> bool:
        """True if the products are of matrix tiles, a run of blocks decoded once for all rows."""
        whole = self.k % self.block == 0 and self.block % self.depth == 0 and 64 % self.depth == 0
        many = self.height >= DECODED_ROWS and self.digits == 1
        return self.target.tiles and whole and many and self.run * self.block <= LONGEST_RUN

    @property
    def ahead(self) -> int:
        """Bytes that weights are fetched ahead; 0 unless few rows leave only memory to wait for.
        Measured: further where codes lie in planes, which take longer."""
        if self.height > MAX_ROWS or not self.target.memory.asks:
            return 0
        return 256 if self.bits == 8 else 1024

    @property
    def run(self) -> int:
        """Blocks whose integers wait in memory between matrix tiles and scales."""
        return self.outer or RUN

    @property
    def decodes_ahead(self) -> bool:
        """True if codes of two runs wait in memory: a single tile of rows has no other work."""
        return self.row_tiles == 1

    @property
    def depth(self) -> int:
        """Codes of a matrix tile along K."""
        return min(self.block, 64)

    @property
    def row_tiles(self) -> int:
        """Matrix tiles of rows of a workgroup."""
        return math.ceil(self.row_block / self.rows)

    @property
    def corrected(self) -> bool:
        """True if the sums of rows' codes count."""
        return self.minimum or self.zero

    @property
    def decoded(self) -> bool:
        """True where rows are so many that a panel's codes are unpacked once, onto the stack."""
        dot, lanes = self.unit.dot, self.target.lanes
        whole = self.k % self.block == 0 and self.block <= lanes * dot.group
        return self.height >= DECODED_ROWS and whole and dot.element == "i8" and dot.group == 4

    @property
    def decoded_run(self) -> int:
        """Blocks that are taken out of their planes together: those that share a factor, or as
        many as divide all of them; they fit the first cache."""
        most = max(1, DECODED // self.block)
        whole = next(n for n in range(min(most, self.blocks), 0, -1) if self.blocks % n == 0)
        return self.outer or (whole if 4 * whole > most else most)

    @property
    def levels(self) -> int:
        """Numbers of a block of a column, in memory while it is `decoded`."""
        return 0 if self.scale == "column" else 1 + self.corrected

    @property
    def summed(self) -> bool:
        """True if `decoded` reads sums of the rows' codes."""
        return self.corrected or (self.offset > 0 and self.unit.dot.lhs_unsigned)

    @property
    def row_block(self) -> int:
        """Rows of a workgroup: whole matrix tiles, or equal shares."""
        if self.stack or (not self.decoded and not self.tiled):
            return self.height
        most, least = math.ceil(self.m / BLOCK_ROWS), math.ceil(self.m / MOST_ROWS)
        if self.tiled:
            blocks = max(least, parts(self.workgroups, most))
            return min(self.m, math.ceil(math.ceil(self.m / blocks) / self.rows) * self.rows)
        blocks = max(least, parts(self.workgroups, most, DECODING / self.m))
        return math.ceil(self.m / blocks)

    @property
    def offset(self) -> int:
        """Offset of stored codes: below 8 bits always, else where products want it."""
        if self.minimum or self.zero:
            return 0
        if self.bits < 8:
            return 1 << (self.bits - 1)
        return 128 if self.unit.dot.lhs_unsigned else 0

    @property
    def layout(self) -> Layout:
        width, levels = self.width // self.streams, 2 if self.minimum else 1
        if self.scale == "column":
            sizes, levels = [], 0
        else:
            sizes = [width * TensorType((), self.scale).dtype.itemsize] * levels
        sizes += [self.target.lanes] * self.zero
        sizes += [self.block * plane // 8 * width for plane in reversed(PLANES[self.bits])]
        *starts, record = accumulate(sizes, initial=0)
        factors = [2 * width * i for i in range(levels + 1)] if self.outer else [0]
        return Layout(
            blocks=self.outer or 1,
            factors=tuple(factors[:-1]),
            first=factors[-1],
            record=record,
            scales=tuple(starts[:levels]),
            zero=starts[levels],
            planes=tuple(reversed(starts[levels + self.zero :])),
        )
