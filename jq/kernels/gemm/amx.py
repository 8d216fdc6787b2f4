"""`Gemm` on matrix tiles.

    dispatch 1, workgroup (tile of rows): codes to tiles of 16 rows x 64 along K, zeros past K;
      floats, rounded to bf16, to tiles of 16 x 32; none where tiles can be read in place
    dispatch 2, workgroup (columns, rows):
      for panel of 32 columns:
        for 2 tiles of rows:
          acc[2][2] = 0
          for a tile along K: 2 + 2 tile loads, 4 products
          acc to memory; two rows at a time: + init (- row_zero * colsum), epilogue, store

A product of tiles takes 16 cycles for 2 * 16 * 16 * 64 operations (half as many in bf16). What does
not divide (rows into blocks and tiles, columns into ranges and panels) is cut so that the last part
ends at the edge; results in two parts are computed twice, with the same bits."""

from collections.abc import Callable
from typing import Any

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tile, Tiles, Values, vec
from jq.kernels.emit.dispatches import Operand, Operands, Output, dispatch
from jq.kernels.epilogue.emission import Columns, Epilogue, Row
from jq.kernels.gemm.description import Gemm
from jq.kernels.gemm.product import PanelProduct
from jq.kernels.gemm.source import Start, first_sums, split_starts
from jq.kernels.machine import amx, dot
from jq.kernels.machine.isa import ISAS
from jq.kernels.machine.tile_cut import DEPTH, ROWS, WORDS, TiledCut
from jq.kernels.schedule.prefetch import address
from jq.kernels.tensor import TensorType


def pack_rows(gemm: Gemm, operand: Operand) -> Operand:
    """[(B,) M, K] -> i32 [(B,) tiles, K / 64, 256]."""
    cut = gemm.tiles

    def fill(b: Builder, source: ir.Value, prefix: Indices, first: Index, out: Tile) -> None:
        def chunk(at: Index, valid: int) -> None:
            for r in range(cut.rows):
                where = [*prefix, b.offset(first, r), b.scaled(at, cut.depth)]
                store_row(b, out, len(prefix), at, r, read_row(gemm, b, source, where, valid))

        b.sweep(cut.k, cut.depth, chunk, writes=[out], counted=True)

    return pack_tiles(operand, cut, gemm.lead, fill)


def read_row(gemm: PanelProduct, b: Builder, source: ir.Value, at: Indices, valid: int) -> ir.Value:
    """A tile's row of what is multiplied, of the first `valid` operands from `at`."""
    if gemm.floats:
        return dot.rounded(b, gemm.target, source, at, gemm.tiles.depth, valid)
    return b.load(source, at, vec(DEPTH, "i8"), valid)


def store_row(b: Builder, out: Tile, depth: int, chunk: Index, r: int, row: ir.Value) -> None:
    """Row r of the tile of a chunk; `depth` leading axes of size 1."""
    words = b.bitcast(row, vec(ROWS, "i32"))
    b.store(words, out, [*([0] * depth), 0, chunk, r * ROWS])


def pack_tiles(
    operand: Operand,
    cut: TiledCut,
    lead: tuple[int, ...],
    fill: Callable[[Builder, ir.Value, Indices, Index, Tile], None],
) -> Operand:
    """Rows as tiles, a workgroup each: `fill(builder, source, batch, first_row, tile)` stores all
    rows and chunks of one; rows that do not exist stay as they are and reach no result."""
    kind, depth = TensorType((*lead, *cut.rows_type), "i32"), len(lead)

    def place(b: Builder, ids: Indices) -> list[Index]:
        tile = b.offset(b.scaled(ids[1], cut.row_tiles), ids[0])
        return [*ids[2 : 2 + depth], tile, 0, 0]

    def body(b: Builder, ids: Indices, tensors: Values, out: Tiles) -> None:
        first = _row_start(b, cut, ids[1], ids[0])
        fill(b, tensors[0], ids[2 : 2 + depth], first, out[0])

    output = Output(kind, (*((1,) * depth), 1, *cut.rows_type[1:]), place)
    return dispatch([operand], [output], [cut.row_tiles, cut.blocks, *lead], body)[0], kind


def _row_start(b: Builder, cut: TiledCut, block: Index, tile: Index) -> Index:
    start = b.part(block, cut.block, cut.m)
    return b.offset(start, b.part(tile, cut.rows, cut.block))


Sample = Callable[[Builder, Index], Index]  # what operands by row are indexed with


# Left tiles where they are: the byte of the first of a tile's rows, by the batch, that row and a
# chunk along K; and the bytes from a row to the next.
InPlace = tuple[Callable[[Builder, Indices, Index, Index], Index], int]


def rows_in_place(gemm: Gemm) -> InPlace:
    """The rows of a matrix follow one another."""
    stride = gemm.k // gemm.tiles.depth * DEPTH

    def first(b: Builder, prefix: Indices, row: Index, chunk: Index) -> Index:
        row = b.offset(b.scaled(prefix[0], gemm.m), row) if prefix else row
        return b.offset(b.scaled(row, stride), b.scaled(chunk, DEPTH))

    return first, stride


def multiply(
    gemm: PanelProduct,
    operands: Operands,
    sample: Sample = lambda b, row: row,
    in_place: InPlace | None = None,
) -> list[ir.Value]:
    """The second dispatch; operands are the packed rows, or what has them in place, and all that
    follow them."""
    cut, lead, depth = gemm.tiles, gemm.lead, len(gemm.lead)

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        row, column = b.part(ids[1], cut.block, cut.m), b.part(ids[0], cut.range, cut.n)
        return [*ids[2 : 2 + depth], row, column]

    def body(b: Builder, ids: Indices, tensors: Values, out: Tiles) -> None:
        column = offsets(b, ids)[-1]
        _Workgroup(gemm, sample, in_place, b, ids, tensors, out[0]).emit(column)

    output = Output(gemm.results[0], (*((1,) * depth), cut.block, cut.range), offsets)
    return dispatch(operands, [output], [cut.ranges, cut.blocks, *lead], body)


class _Workgroup:
    """The body of one workgroup: a block of rows, a range of columns."""

    def __init__(
        self,
        gemm: PanelProduct,
        sample: Sample,
        in_place: InPlace | None,
        b: Builder,
        ids: Indices,
        tensors: Values,
        out: Tile,
    ) -> None:
        self.gemm, self.sample, self.b, self.cut, self.out = gemm, sample, b, gemm.tiles, out
        self.range_id, self.block_id, *self.prefix = ids[: 2 + len(gemm.lead)]
        self.rows, self.weights, *rest = tensors
        self.in_place = in_place
        self.base: Any = in_place and address(self.rows, "rows")
        self.starts, self.steps = split_starts(gemm, rest)
        self.scratch = b.scratch([self.cut.tall * self.cut.vectors * WORDS], gemm.sums)

    def emit(self, column: Index) -> None:
        """Tiles of a panel; where K is short, panels of a tile, whose results lie together."""
        b, cut, writes = self.b, self.cut, [self.out]
        tiles, panels = (cut.row_tiles, cut.tall), (cut.panels, 1)
        outer, inner = (tiles, panels) if cut.short else (panels, tiles)
        with b.loop(0, *outer, writes=writes) as one, b.loop(0, *inner, writes=writes) as other:
            tile, panel = (one, other) if cut.short else (other, one)
            self._panel(panel.index, tile.index, column)

    def _panel(self, panel: Index, tile: Index, column: Index) -> None:
        b, cut, gemm = self.b, self.cut, self.gemm
        local = b.part(panel, cut.width, cut.range)
        to = Columns(ROWS, cut.vectors, b.offset(column, local), gemm.span)
        epilogue = Epilogue(b, gemm.epilogue, self.steps, to, self.prefix)
        start = Start(gemm, epilogue, first_sums(epilogue, self.starts), self.starts[1:])
        first = b.offset(b.scaled(self.range_id, cut.panels), panel)
        columns = [b.offset(b.scaled(first, cut.vectors), j) for j in range(cut.vectors)]
        top = b.at_most(tile, cut.row_tiles - cut.tall)
        rows = [b.offset(top, i) for i in range(cut.tall)]
        self._products(rows, columns)
        for i, row in enumerate(rows):
            self._finish(row, i, epilogue, start, local)

    def _products(self, rows: Indices, columns: Indices) -> None:
        """All of K for tiles of rows (of the block) by tiles of columns, into the scratch."""
        b, cut = self.b, self.cut
        codes = "tdpbusd" if self.gemm.unsigned else "tdpbssd"
        kind = "tdpbf16ps" if self.gemm.floats else codes
        acc = [amx.zero(b, cut.rows) for _ in rows for _ in columns]
        with b.loop(0, cut.chunks, carry=acc) as loop:
            left, sums = [self._left(row, loop.index) for row in rows], list(loop.carried)
            for j, column in enumerate(columns):
                right = amx.load(b, self.weights, [*self.prefix, column, loop.index, 0])
                for n, tile in zip(range(j, len(sums), len(columns)), left, strict=True):
                    sums[n] = amx.product(b, sums[n], tile, right, kind, rows=cut.rows)
            loop.carried = sums
        for i, tile in enumerate(loop.carried):
            amx.store(b, tile, self.scratch, i * WORDS, rows=cut.rows)

    def _left(self, row: Index, chunk: Index) -> ir.Value:
        """The tile of a chunk of 16 rows, or so many as tiles have."""
        b, cut = self.b, self.cut
        if self.in_place is None:
            tile = b.offset(b.scaled(self.block_id, cut.row_tiles), row)
            return amx.load(b, self.rows, [*self.prefix, tile, chunk, 0])
        first, stride = self.in_place
        at = first(b, self.prefix, _row_start(b, cut, self.block_id, row), chunk)
        return amx.strided(b, self.base, at, stride, cut.rows)

    def _finish(self, tile: Index, i: int, epilogue: Epilogue, start: Start, column: Index) -> None:
        """The epilogue of a tile, two rows at a time: codes of four vectors are packed at once."""
        b, cut, lead = self.b, self.cut, [0] * len(self.prefix)
        first, inside = _row_start(b, cut, self.block_id, tile), b.part(tile, cut.rows, cut.block)
        tall = min(cut.tall, cut.rows)
        with b.loop(0, cut.rows, tall, writes=[self.out]) as loop:
            finished = []
            for r in range(tall):
                at = b.offset(b.at_most(loop.index, cut.rows - tall), r)
                row, to = b.offset(first, at), [*lead, b.offset(inside, at)]
                by_row = self.sample(b, row)
                total = self._row_sum(tile, at) if start.needs_sums else None
                word = b.offset(b.scaled(at, ROWS), i * cut.vectors * WORDS)
                words = [b.offset(word, j * WORDS) for j in range(cut.vectors)]
                sums = [b.get(self.scratch, [w], vec(ROWS, self.gemm.sums)) for w in words]
                if not self.gemm.floats:
                    sums = [*map(b.add, sums, start.of(by_row, total))]
                finished.append(Row(sums, [row], to, [by_row], column))
            epilogue.store(self.gemm.target, self.out, finished, 1)

    def _row_sum(self, tile: Index, row: Index) -> ir.Value:
        """The sum of the codes of a row of a tile, as they are stored, in every lane."""
        b, isa = self.b, ISAS["avx512_vnni"]
        at = b.offset(b.scaled(self.block_id, self.cut.row_tiles), tile)
        with b.loop(0, self.cut.chunks, carry=[b.i32(0, ROWS)]) as loop:
            where = [*self.prefix, at, loop.index, b.scaled(row, ROWS)]
            codes = b.bitcast(b.load(self.rows, where, vec(ROWS, "i32")), vec(DEPTH, "i8"))
            loop.carried = [dot.add_codes(b, isa, loop.carried[0], codes, self.gemm.unsigned)]
        return b.reduce(loop.carried[0], b.add)
