"""The body of `Gemm` in vectors, and where its accumulators start from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from iree.compiler import ir

from jq.kernels import dot, overlap, tiling
from jq.kernels.ahead import Ahead
from jq.kernels.builder import Builder, Tile
from jq.kernels.dispatch import Output, dispatch
from jq.kernels.finish import TOGETHER, Epilogue, Row
from jq.kernels.frame import Part
from jq.kernels.overlap import Between
from jq.kernels.rows import fill
from jq.kernels.sequences import Blocks
from jq.kernels.tensor import TensorType
from jq.kernels.values import Index, vec

if TYPE_CHECKING:
    from jq.kernels.gemm import Gemm


class Corrected(Protocol):
    """Which corrections a product has."""

    @property
    def row_zero(self) -> bool: ...
    @property
    def column_zero(self) -> bool: ...
    @property
    def weight_offset(self) -> int: ...


def correction_types(
    product: Corrected, rows: tuple[int, ...], columns: int
) -> tuple[TensorType, ...]:
    """The operands of zero points that are found at run time: `row_zero`, and `colsum`."""
    kinds = (TensorType(rows, "i32"), TensorType((columns,), "i32"))
    return kinds if product.row_zero else ()


def split_corrections(
    gemm: Corrected, tensors: Sequence[ir.Value]
) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
    """The operands behind `init`: of the corrections, and of the epilogue."""
    count = 2 * gemm.row_zero + gemm.column_zero
    return tensors[:count], tensors[count:]


class Start:
    """What accumulators start from (or end with): everything but the products.

        init[n] - row_zero[m] * colsum[n] - sum_k codes[m, k] * column_zero[n]

    The last term also takes out an offset of the weights, which is the same for every column.
    """

    def __init__(
        self,
        gemm: Corrected,
        epilogue: Epilogue,
        init: ir.Value,
        corrections: Sequence[ir.Value],
    ) -> None:
        self.gemm, self.epilogue, self.b = gemm, epilogue, epilogue.b
        self.init = epilogue.by_column(init, "i32")
        rest = list(corrections)
        if gemm.row_zero:
            self.row_zero = rest.pop(0)
            self.colsum = epilogue.by_column(rest.pop(0), "i32")
        if gemm.column_zero:
            self.column_zero = epilogue.by_column(rest.pop(0), "i32")
        elif gemm.weight_offset:
            offset = self.b.i32(gemm.weight_offset, epilogue.lanes)
            self.column_zero = [offset] * len(self.init)

    @property
    def needs_sums(self) -> bool:
        return self.gemm.column_zero or bool(self.gemm.weight_offset)

    def of(self, row: Index, total: ir.Value | None) -> list[ir.Value]:
        """The panel's vectors for a row whose codes sum to `total`."""
        b, start = self.b, self.init
        if self.gemm.row_zero:
            zero = self.epilogue.scalar(self.row_zero, [row], "i32")
            start = [b.sub(v, b.mul(zero, c)) for v, c in zip(start, self.colsum, strict=True)]
        if total is not None:
            start = [
                b.sub(v, b.mul(total, c)) for v, c in zip(start, self.column_zero, strict=True)
            ]
        return start


def emit(gemm: Gemm, operands: Sequence[tuple[ir.Value, TensorType]]) -> list[ir.Value]:
    """The dispatch; its result."""
    cut, depth = gemm.tiling, len(gemm.lead)
    width = min(gemm.n, cut.vectors * gemm.target.lanes)
    blocks = Blocks.of(gemm.m, cut.block, gemm.sequences)

    def offsets(b: Builder, ids: Sequence[Index]) -> list[Index]:
        row = blocks.first(b, ids[0])
        column = b.at_most(b.scaled(ids[1], width), gemm.n - width)
        return [*ids[2 : 2 + depth], row, column]

    def body(
        b: Builder, ids: Sequence[Index], tensors: Sequence[ir.Value], tiles: Sequence[Tile]
    ) -> None:
        *prefix, row, column = offsets(b, ids)
        wanted: Index = cut.block
        if gemm.sequences:
            *tensors, counts = tensors
            wanted = gemm.sequences.wanted(b, counts, row, cut.block)
        part = gemm.frame.part(b, row, cut.block, gemm.m) if gemm.frame else None
        if part:
            part.fill(b, tiles[0], gemm.results[0])
        panel = Panel(gemm, b, tensors, tiles[0], prefix, row, column, ids[1], part=part)
        panel.emit(cut.block, wanted)
        if gemm.sequences and gemm.sequences.fill:
            fill(b, tiles[0], gemm.results[0], wanted, cut.block)

    plain = Output(gemm.results[0], (*((1,) * depth), cut.block, width), offsets)
    output = gemm.frame.around(plain, gemm.m) if gemm.frame else plain
    return dispatch(operands, [output], [blocks.count, cut.panels, *gemm.lead], body)


class Panel:
    """Rows from `row` by one panel of columns from `column`, stored from column `to` of a tile, in
    the `part` of a frame that it is.
    """

    def __init__(
        self,
        gemm: Gemm,
        b: Builder,
        tensors: Sequence[ir.Value],
        tile: Tile,
        prefix: Sequence[Index],
        row: Index,
        column: Index,
        panel: Index,
        to: Index = 0,
        part: Part | None = None,
    ) -> None:
        self.gemm, self.b, self.isa, self.tile = gemm, b, gemm.target, tile
        self.prefix, self.row, self.panel, self.to = list(prefix), row, panel, to
        self.part = part
        self.codes, self.weights, init, *rest = tensors
        corrections, steps = split_corrections(gemm, rest)
        self.vectors = range(gemm.tiling.vectors)
        self.epilogue = Epilogue(
            b,
            gemm.epilogue,
            steps,
            lanes=self.isa.lanes,
            vectors=len(self.vectors),
            column=column,
            n=gemm.n,
            prefix=prefix,
        )
        self.start = Start(gemm, self.epilogue, init, corrections)
        self.ahead: Ahead | None = None

    def emit(self, block: int, wanted: Index) -> None:
        """The first `wanted` of `block` rows."""
        gemm, tall = self.gemm, min(block, self.gemm.tiling.rows)
        if gemm.batch == 1 and gemm.streams == 1:
            self.ahead = Ahead.of(self.b, self.weights, self.panel, gemm.m, block, tall)
        if not isinstance(wanted, int):
            self._tiles(tall, block, wanted)
            return
        whole, rest = tiling.tiles(wanted, tall)
        if whole:
            self._tiles(tall, whole, whole)
        if rest:
            self._rows(whole, rest)

    def _tiles(self, tall: int, block: int, wanted: Index) -> None:
        """The register tiles of the first `wanted` of `block` rows, the last of which ends at the
        block's end at most.
        """
        if block > tall and self._overlaps(tall):
            self._overlapped(tall, block, wanted)
            return
        with self.b.loop(0, wanted, tall, writes=[self.tile]) as loop:
            self._rows(self.b.at_most(loop.index, block - tall), tall)

    def _rows(self, first: Index, count: int) -> None:
        """One register tile: `count` rows from `first` (within the block)."""
        acc = self._products(first, count)
        self._finish(first, [acc[i : i + len(self.vectors)] for i in self._places(count)])

    # Epilogues among products

    @property
    def _pieces(self) -> range:
        return overlap.pieces(self.epilogue)

    def _overlaps(self, tall: int) -> bool:
        return overlap.pays(self.isa, self.epilogue, self._whole, tall * len(self._pieces))

    def _overlapped(self, tall: int, block: int, wanted: Index) -> None:
        """The register tiles of the first `wanted` of `block` rows."""

        def products(first: Index, between: Between) -> list[ir.Value]:
            return self._products(first, tall, between)

        def finish(row: Index, accumulators: Sequence[ir.Value], vector: int) -> None:
            self._finish(row, [accumulators], vector, 1)

        cut = self._pieces
        overlap.emit(self.b, self.isa, self.tile, tall, cut, block, wanted, products, finish)

    def _places(self, count: int) -> range:
        """Where the accumulators of each row of a tile begin."""
        return range(0, count * len(self.vectors), len(self.vectors))

    @property
    def _whole(self) -> int:
        """Steps along K of whole groups."""
        return self.gemm.k // self.isa.dot.group

    def _products(self, first: Index, count: int, between: Between | None = None) -> list[ir.Value]:
        """The accumulators of a register tile; something else after each of some parts of K."""
        b, steps = self.b, self._whole
        rows = [b.offset(self.row, b.offset(first, i)) for i in range(count)]
        tile = self.ahead.tile(first) if self.ahead else 0

        def step(acc: list[ir.Value], k: Index) -> list[ir.Value]:
            if self.ahead:
                self.ahead.fetch(tile, k)
            return self._step(acc, rows, k, None)

        acc = self._start(rows)
        if between:
            acc = overlap.parts(b, self.tile, acc, steps, count, self._pieces, step, between)
        else:
            acc = overlap.along(b, acc, 0, steps, step)
        tail = self.gemm.k % self.isa.dot.group
        return self._step(acc, rows, steps, tail) if tail else acc

    def _finish(
        self,
        first: Index,
        accumulators: Sequence[Sequence[ir.Value]],
        vector: int = 0,
        chain: int = TOGETHER,
    ) -> None:
        """The epilogue of rows from `first`, and of a panel's vectors from `vector`."""
        b, lead = self.b, [0] * len(self.prefix)
        local = [b.offset(first, i) for i in range(len(accumulators))]
        rows = [b.offset(self.row, at) for at in local]
        places = [self.part.row(b, row) for row in rows] if self.part else local
        column = b.offset(self.to, vector * self.isa.lanes)
        finished = [
            Row(acc, [row], [*lead, at], [row], column, vector)
            for acc, at, row in zip(accumulators, places, rows, strict=True)
        ]
        self.epilogue.store(self.isa, self.tile, finished, chain)

    def _start(self, rows: Sequence[Index]) -> list[ir.Value]:
        """Where the accumulators of a register tile start from."""
        sums = self._row_sums(rows) if self.start.needs_sums else [None] * len(rows)
        return [v for row, total in zip(rows, sums, strict=True) for v in self.start.of(row, total)]

    def _row_sums(self, rows: Sequence[Index]) -> list[ir.Value]:
        """The sum of every row's codes, in every lane."""
        b, isa, k = self.b, self.isa, self.gemm.k
        width = isa.lanes * isa.dot.group
        ones = dot.splat(b, isa, 1)

        def add(sums: Sequence[ir.Value], at: Index, valid: int | None) -> list[ir.Value]:
            kind = vec(width, "i8")
            codes = [b.load(self.codes, [*self.prefix, row, at], kind, valid) for row in rows]
            wide = [c if isa.dot.element == "i8" else b.extend(c, isa.dot.element) for c in codes]
            return [dot.dot(b, isa, s, ones, c) for s, c in zip(sums, wide, strict=True)]

        sums = [b.i32(0, isa.lanes)] * len(rows)
        whole, tail = divmod(k, width)
        if whole:
            with b.loop(0, whole * width, width, carry=sums) as loop:
                loop.carried = add(loop.carried, loop.index, None)
            sums = loop.carried
        if tail:
            sums = add(sums, whole * width, tail)
        return [b.reduce(s, b.add) for s in sums]

    def _place(self, k: Index, j: int, size: int) -> list[Index]:
        """Where vector `j` of a panel's step lies."""
        if self.gemm.streams == 1:
            return [self.panel, k, j * size]
        stream, vector = divmod(j, len(self.vectors) // self.gemm.streams)
        return [stream, self.panel, k, vector * size]

    def _step(
        self, acc: Sequence[ir.Value], rows: Sequence[Index], k: Index, valid: int | None
    ) -> list[ir.Value]:
        """All products of one group along K."""
        b, isa = self.b, self.isa
        size = isa.lanes * isa.dot.group
        weights = [
            dot.weights(b, isa, self.weights, [*self.prefix, *self._place(k, j, size)])
            for j in self.vectors
        ]
        flip = self.gemm.unsigned and not isa.dot.lhs_unsigned
        column = b.scaled(k, isa.dot.group)
        out = list(acc)
        for i, row in enumerate(rows):
            lhs = dot.codes(b, isa, self.codes, [*self.prefix, row, column], flip, valid)
            for j, weight in enumerate(weights):
                at = i * len(weights) + j
                pair = (weight, lhs) if self.gemm.swapped else (lhs, weight)
                out[at] = dot.dot(b, isa, out[at], *pair)
        return out
