"""`Attention` in vectors: the work on a block of rows of one head."""

from __future__ import annotations

import math
from functools import reduce

from iree.compiler import ir

from jq.kernels.attention.description import Attention
from jq.kernels.attention.pack import Lanes
from jq.kernels.attention.skeleton import WIDE, HeadRows
from jq.kernels.build.builder import Builder, Tile
from jq.kernels.build.lanes import Chains, batches
from jq.kernels.build.values import Index, Indices, Values, vec
from jq.kernels.epilogue.emission import Columns, Epilogue
from jq.kernels.epilogue.functions import exp2
from jq.kernels.schedule.rows import split

LOG2_E = math.log2(math.e)


class Head(HeadRows):
    """The body of one workgroup."""

    together = 4

    def __init__(
        self,
        kernel: Attention,
        b: Builder,
        tensors: Values,
        tile: Tile,
        row: Index,
        head: Index,
        batch: Index,
    ) -> None:
        super().__init__(kernel, b, tile, row, head)
        self.kernel, self.batch, self.ops = kernel, batch, Lanes(kernel, b)
        self.group = b.divided(head, kernel.heads // kernel.kv_heads)
        self.q, self.k, self.v, *rest = tensors
        self.mask = rest.pop(0) if kernel.mask != "none" else None
        columns = Columns(self.lanes, 0, 0, kernel.dim)
        self.epilogue = Epilogue(b, kernel.epilogue, rest, columns)
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

    def _query_place(self, row: Index, word: Index) -> list[Index]:
        """Where words of a query go."""
        return [row, word]

    def _probability_place(self, row: Index, word: Index) -> list[Index]:
        """Where words of probabilities go."""
        return [row, word]

    def _query(self, first: Index, i: Index) -> None:
        b, kernel = self.b, self.kernel
        start = b.offset(b.scaled(self.head, kernel.dim), kernel.starts[0])
        row = b.offset(self.row, b.offset(first, i))
        for d in range(0, kernel.dim, kernel.pair * self.lanes):
            at = [self.batch, row, start]
            words = self.ops.row_words(self.q, at, d, kernel.scale * LOG2_E)
            b.put(words, self.queries, self._query_place(i, d // kernel.pair))

    # Scores

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
        acc = [self._masked(first, i, c, valid) for i in range(count) for c in columns]
        acc = self._products(
            acc,
            self.kernel.packed[0].shape[2],
            count,
            lambda d: self._words(self.k, d, columns),
            lambda i, d: self._broadcast(self.queries, [i, d]),
            self.ops.product,
        )
        for i in range(count):
            for j, c in enumerate(columns):
                scores = b.keep(acc[i * vectors + j], valid, -math.inf)
                b.put(scores, self.scores, [i, c])

    def _masked(self, first: Index, i: Index, column: Index, valid: int | None) -> ir.Value:
        """Where a score starts from: the mask, or zero. Scores are exponents of 2."""
        b, kind = self.b, vec(self.lanes, "f32")
        if self.mask is None:
            return b.f32(0.0, self.lanes)
        at = [self.batch, column]
        if self.kernel.mask == "full":
            at.insert(1, b.offset(self.row, b.offset(first, i)))
        return b.mul(b.load(self.mask, at, kind, valid), b.f32(LOG2_E, self.lanes))

    def _words(self, source: ir.Value, at: Index, columns: Indices) -> list[ir.Value]:
        """Vectors of packed k or v."""
        lead = [self.batch, self.group, at]
        return [self.b.load(source, [*lead, c], self.ops.word) for c in columns]

    def _broadcast(self, scratch: ir.Value, at: Indices) -> ir.Value:
        one = self.b.get(scratch, at, ir.VectorType.get([1], self.ops.word.element_type))
        return self.b.broadcast(one, self.lanes)

    # Softmax

    def _softmax(self, rows: Indices) -> None:
        """Probabilities of some rows, not yet divided by their sums; `inverse` holds 1 / sum.

        Rows go together so that their chains of dependent operations overlap.
        """
        b, lanes, pair = self.b, self.lanes, self.kernel.pair
        unit, keys = lanes * pair, self.kernel.padded_keys
        minus = b.f32(-math.inf, lanes)
        with b.loop(0, keys, unit, carry=[minus] * (len(rows) * pair)) as loop:
            loop.carried = [
                b.max(self._score(row, loop.index, i), loop.carried[r * pair + i])
                for r, row in enumerate(rows)
                for i in range(pair)
            ]
        largest = [b.reduce(reduce(b.max, own), b.max) for own in split(loop.carried, len(rows))]
        repeated = [top for top in largest for _ in range(pair)]
        most = [b.join(part) for part in batches(repeated, WIDE)]
        chains = Chains(lanes, pair)
        with b.loop(0, keys // pair, lanes, carry=chains.start(b) * len(rows)) as loop:
            exps = []
            for part, tops in zip(batches(rows, WIDE // pair), most, strict=True):
                at = b.scaled(loop.index, pair)
                scores = b.join([self._score(row, at, i) for row in part for i in range(pair)])
                exps += b.split(exp2(b, b.sub(scores, tops), math.inf), lanes)
            for r, row in enumerate(rows):
                words = self.ops.words(exps[r * pair : (r + 1) * pair])
                b.put(words, self.probabilities, self._probability_place(row, loop.index))
            by_row = zip(split(loop.carried, len(rows)), split(exps, len(rows)), strict=True)
            loop.carried = [v for own, more in by_row for v in chains.add(b, own, more)]
        totals = [chains.joined(b, own) for own in split(loop.carried, len(rows))]
        for row, most, total in zip(rows, largest, totals, strict=True):
            # A row of -inf has no softmax: inf - inf makes it NaN.
            inverse = b.div(b.f32(1.0, lanes), b.add(total, b.sub(most, most)))
            b.put(inverse, self.inverse, [row, 0])

    def _score(self, row: Index, key: Index, i: int) -> ir.Value:
        at = [row, self.b.offset(key, i * self.lanes)]
        return self.b.get(self.scores, at, vec(self.lanes, "f32"))

    # Values

    def _value_tile(self, first: Index, count: int, start: int, vectors: int) -> None:
        b, lanes, kernel = self.b, self.lanes, self.kernel
        columns = [(start + j) * lanes for j in range(vectors)]
        acc = [b.f32(0.0, lanes)] * (count * vectors)
        acc = self._products(
            acc,
            kernel.padded_keys // kernel.pair,
            count,
            lambda key: self._words(self.v, key, columns),
            lambda i, key: self._broadcast(self.probabilities, [i, key]),
            self.ops.product,
        )
        for i in range(count):
            inverse = b.get(self.inverse, [i, 0], vec(lanes, "f32"))
            for j, column in enumerate(columns):
                y = b.mul(acc[i * vectors + j], inverse)
                y = self.epilogue.apply(y, [], 0, self.epilogue.row([]))
                at = [0, b.offset(first, i), column]
                b.store(y, self.tile, at, kernel.dim - column)
