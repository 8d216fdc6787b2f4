"""The body of `Attention`: two dispatches, of which the second has a workgroup a block of rows.
A few rows have a body of their own."""

import math
from functools import reduce

from iree.compiler import ir
from iree.compiler.dialects import flow

from jq.kernels.attention.description import Attention
from jq.kernels.attention.few_rows import attend
from jq.kernels.attention.pack import Lanes, pack, scored, shown
from jq.kernels.attention.skeleton import HeadPart, HeadRows, over_rows
from jq.kernels.emit import Builder, Index, Indices, Operands, Tile, Values, emit, mlir_type, vec
from jq.kernels.epilogue.emission import Columns, Epilogue
from jq.kernels.machine import ROWS, WORDS, amx
from jq.kernels.schedule.rows import split


# `Attention` in vectors: the work on a block of rows of one head.
class Head(HeadRows):
    """The body of one workgroup."""

    together = 4

    def __init__(
        self, kernel: Attention, b: Builder, tensors: Values, tile: Tile, place: HeadPart
    ) -> None:
        super().__init__(kernel, b, tile, place)
        self.kernel, self.pair, self.ops = kernel, kernel.pair, Lanes(kernel, b)
        self.q, self.k, self.v, *rest = tensors
        self.mask = rest.pop(0) if kernel.mask != "none" else None
        self.factor = kernel.factor
        columns = Columns(self.lanes, 0, 0, kernel.dim)
        self.epilogue = Epilogue(b, kernel.epilogue, rest, columns)
        self.first, reach = shown(kernel, b, self.mask, place.batch, place.row, kernel.block)
        self.span = b.above(reach, self.first)
        self._allocate()

    def _allocate(self) -> None:
        kernel, b = self.kernel, self.b
        word = "i32" if kernel.pair == 2 else "f32"
        rows, keys = kernel.tile, kernel.padded_keys
        unit = kernel.pair * self.lanes
        depth = math.ceil(kernel.dim / unit) * self.lanes
        self.queries = b.scratch([rows, depth], word)
        self.scores = b.scratch([rows, keys], "f32")
        self.probabilities = b.scratch([rows, keys // kernel.pair], word)
        self.inverse = b.scratch([rows, self.lanes], "f32")

    def _place(self, row: Index, word: Index) -> list[Index]:
        """Place for words of a query, or of its probabilities."""
        return [row, word]

    def _query(self, first: Index, i: Index) -> None:
        b, kernel = self.b, self.kernel
        start = b.offset(b.scaled(self.head, kernel.dim), kernel.starts[0])
        row = b.offset(self.row, b.offset(first, i))
        for d in range(0, kernel.dim, kernel.pair * self.lanes):
            at = [self.shared[0], row, start]
            words = self.ops.row_words(self.q, at, d)
            b.put(words, self.queries, self._place(i, d // kernel.pair))

    def _scores(self, first: Index, count: int) -> None:
        b, kernel, lanes = self.b, self.kernel, self.lanes
        super()._scores(first, count)
        for key in range(math.ceil(kernel.keys / lanes) * lanes, kernel.padded_keys, lanes):
            for i in range(count):
                b.put(b.f32(-math.inf, lanes), self.scores, [i, key])

    def _score_tile(
        self, first: Index, count: int, key: Index, vectors: int, valid: int | None
    ) -> None:
        b, lanes = self.b, self.lanes
        columns = [b.offset(key, j * lanes) for j in range(vectors)]
        acc: Values = [b.f32(0.0, lanes)] * (count * vectors)
        depth = self.kernel.packed[0].shape[2]
        acc = self._products(acc, depth, self.queries, self.k, columns)
        for i in range(count):
            for j, c in enumerate(columns):
                scores = self._masked(acc[i * vectors + j], first, i, c, valid)
                b.put(b.keep(scores, valid, -math.inf), self.scores, [i, c])

    def _masked(
        self, sums: ir.Value, first: Index, i: Index, column: Index, valid: int | None
    ) -> ir.Value:
        """Scores from the products' sums."""
        if self.mask is None:
            return sums
        row = self.b.offset(first, i) if self.kernel.mask == "full" else 0
        return scored(self.kernel, self.b, sums, self._hidden(self.mask, row, column, valid))

    def _right(self, source: ir.Value, step: Index, columns: Indices) -> list[ir.Value]:
        return [self.b.load(source, [*self.shared, step, c], self.ops.word) for c in columns]

    def _left(self, scratch: ir.Value, row: int, step: Index) -> ir.Value:
        kind = ir.VectorType.get([1], self.ops.word.element_type)
        return self.b.broadcast(self.b.get(scratch, [row, step], kind), self.lanes)

    def _product(self, acc: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
        return self.ops.product(acc, left, right)

    def _softmax(self, rows: Indices) -> None:
        """Probabilities of some rows, not yet divided by their sums; `inverse` holds 1 / sum."""
        b, lanes, pair = self.b, self.lanes, self.pair
        minus = b.f32(-math.inf, lanes)
        with b.loop(0, self.span, lanes * pair, carry=[minus] * (len(rows) * pair)) as loop:
            key = self._key(loop.index, lanes * pair)
            loop.carried = [
                b.max(self._score(row, key, i), loop.carried[r * pair + i])
                for r, row in enumerate(rows)
                for i in range(pair)
            ]
        largest = [b.reduce(reduce(b.max, own), b.max) for own in split(loop.carried, len(rows))]

        def store(row: Index, word: Index, exps: Values) -> None:
            b.put(self.ops.words(exps), self.probabilities, self._place(row, word))

        sums = self._exponentials(rows, largest, b.divided(self.span, pair), store)
        totals = [total() for total in sums]
        for row, total in zip(rows, totals, strict=True):
            b.put(b.div(b.f32(1.0, lanes), total), self.inverse, [row, 0])

    def _value_tile(self, first: Index, count: int, start: int, vectors: int) -> None:
        b, lanes, kernel = self.b, self.lanes, self.kernel
        columns = [(start + j) * lanes for j in range(vectors)]
        acc = [b.f32(0.0, lanes)] * (count * vectors)
        depth = b.divided(self.span, kernel.pair)
        acc = self._products(acc, depth, self.probabilities, self.v, columns, self._word)
        for i in range(count):
            inverse = b.get(self.inverse, [i, 0], vec(lanes, "f32"))
            for j, column in enumerate(columns):
                self._finish(first, i, column, b.mul(acc[i * vectors + j], inverse))

    def _finish(self, first: Index, i: Index, column: int, y: ir.Value) -> None:
        y = self.epilogue.apply(self.isa, y, [], 0, self.epilogue.row([]))
        at = [0, self.b.offset(first, i), column]
        self.b.store(y, self.tile, at, self.kernel.dim - column)


# `Attention` on matrix tiles: 16 rows of q by 16 keys, 32 columns of the head at a time, in bf16.
#
# for 16 rows:
#   q in tiles; scores = q k^T              a product of tiles for 32 columns of D
#   + mask, softmax                         in vectors, row by row
#   probabilities in tiles; out = p v       a product for 32 keys
#   out / sum, epilogue, store
TOGETHER = 4  # tiles of results


class TiledHead(Head):
    """The body of one workgroup: a block of rows of one head."""

    def _allocate(self) -> None:
        kernel, b = self.kernel, self.b
        self.chunks = math.ceil(kernel.dim / (2 * ROWS))
        self.pairs = kernel.padded_keys // (2 * ROWS)
        self.queries = b.scratch([self.chunks, WORDS], "i32")
        self.scores = b.scratch([ROWS, kernel.padded_keys], "f32")
        self.probabilities = b.scratch([self.pairs, WORDS], "i32")
        self.results = b.scratch([ROWS, kernel.padded_dim], "f32")
        self.inverse = b.scratch([ROWS, self.lanes], "f32")

    def _place(self, row: Index, word: Index) -> list[Index]:
        """Tile and place of a row's 16 words from `word`."""
        return [self.b.divided(word, ROWS), self.b.scaled(row, ROWS)]

    def _scores(self, first: Index, count: int) -> None:
        b, kernel = self.b, self.kernel
        columns = kernel.padded_keys // ROWS
        step = min(TOGETHER, columns)
        with b.loop(0, columns, step) as loop:
            tile = b.at_most(loop.index, columns - step)
            acc = [amx.zero(b)] * step
            for chunk in range(self.chunks):
                q = amx.load(b, self.queries, [chunk, 0])
                for j in range(step):
                    at = [*self.shared, b.offset(tile, j), chunk, 0]
                    k = amx.load(b, self.k, at)
                    acc[j] = amx.product(b, acc[j], q, k, "tdpbf16ps")
            for j, scores in enumerate(acc):
                word = b.scaled(b.offset(tile, j), ROWS)
                amx.store(b, scores, self.scores, word, kernel.padded_keys)
        with b.loop(0, count) as rows:
            self._hide(first, rows.index)

    def _hide(self, first: Index, row: Index) -> None:
        """Adds the mask to one row of scores, and -inf past the last key."""
        b, lanes, keys = self.b, self.lanes, self.kernel.keys
        whole, tail = divmod(keys, lanes)

        def vector(column: Index, valid: int | None) -> None:
            scores = b.get(self.scores, [row, column], vec(lanes, "f32"))
            if self.mask is not None and valid != 0:
                scores = self._masked(scores, first, row, column, valid)
            b.put(b.keep(scores, valid, -math.inf), self.scores, [row, column])

        if whole and self.mask is not None:
            with b.loop(0, whole * lanes, lanes) as loop:
                vector(loop.index, None)
        for column in range(whole * lanes, self.kernel.padded_keys, lanes):
            vector(column, tail if column == whole * lanes else 0)

    def _values(self, first: Index, count: int) -> None:
        b, kernel = self.b, self.kernel
        columns = kernel.padded_dim // ROWS
        for start in range(0, columns, TOGETHER):
            some = range(start, min(start + TOGETHER, columns))
            with b.loop(0, self.pairs, carry=[amx.zero(b) for _ in some]) as loop:
                p = amx.load(b, self.probabilities, [loop.index, 0])
                out = []
                for acc, j in zip(loop.carried, some, strict=True):
                    v = amx.load(b, self.v, [*self.shared, j, loop.index, 0])
                    out.append(amx.product(b, acc, p, v, "tdpbf16ps"))
                loop.carried = out
            for acc, j in zip(loop.carried, some, strict=True):
                amx.store(b, acc, self.results, j * ROWS, kernel.padded_dim)
        with b.loop(0, count, writes=[self.tile]) as rows:
            inverse = b.get(self.inverse, [rows.index, 0], vec(self.lanes, "f32"))
            for column in range(0, kernel.padded_dim, ROWS):
                y = b.get(self.results, [rows.index, column], vec(self.lanes, "f32"))
                self._finish(first, rows.index, column, b.mul(y, inverse))


@emit.register
def emit_attention(kernel: Attention, operands: Operands) -> list[ir.Value]:
    if kernel.few:
        return [flow.tensor_reshape(mlir_type(kernel.results[0]), attend(kernel, operands), [], [])]
    q, k, v, *rest = operands
    packed = zip(pack(kernel, [k, v, *rest[: kernel.skips]]), kernel.packed, strict=True)
    body_of_head = TiledHead if kernel.on_tiles else Head

    def body(b: Builder, tensors: Values, tile: Tile, place: HeadPart) -> None:
        body_of_head(kernel, b, tensors, tile, place).emit(kernel.block)

    return over_rows(kernel, [q, *packed, *rest], kernel.results[0], body)
