"""`Attention` in vectors: the work on a block of rows of one head."""

import math
from functools import reduce

from iree.compiler import ir

from jq.kernels.attention.description import Attention
from jq.kernels.attention.pack import Lanes, scored, shown
from jq.kernels.attention.skeleton import HeadPart, HeadRows
from jq.kernels.emit import Builder, Index, Indices, Tile, Values, vec
from jq.kernels.epilogue.emission import Columns, Epilogue
from jq.kernels.schedule.rows import split


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
