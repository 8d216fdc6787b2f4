"""`Attention` in vectors: keys and values packed, and the body of a head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from iree.compiler import ir

from jq.kernels.builder import Builder, Tile
from jq.kernels.dispatch import Output, dispatch
from jq.kernels.finish import Epilogue
from jq.kernels.functions import exp2
from jq.kernels.lanes import batches, transpose
from jq.kernels.tensor import TensorType
from jq.kernels.values import Index, vec

if TYPE_CHECKING:
    from jq.kernels.attention import Attention

Operand = tuple[ir.Value, TensorType]
LOG2_E = math.log2(math.e)
TOGETHER = 4  # rows of a softmax
WIDE = 4  # vectors that go through a function as one


class Lanes:
    """Loads and products in the kernel's precision."""

    def __init__(self, kernel: Attention, b: Builder) -> None:
        self.kernel, self.b, self.isa = kernel, b, kernel.target
        self.lanes, self.pair = self.isa.lanes, kernel.pair
        self.word = vec(self.lanes, "i32" if self.pair == 2 else "f32")

    def words(self, values: Sequence[ir.Value]) -> ir.Value:
        """`pair` consecutive f32 vectors as one vector of words: bf16 pairs, or f32 itself."""
        if self.pair == 1:
            return values[0]
        return self.b.bitcast(self.narrow(*values), self.word)

    def narrow(self, low: ir.Value, high: ir.Value) -> ir.Value:
        """Two f32 vectors as one of bf16, rounded to nearest even (IREE expands `truncf`)."""
        kind = vec(2 * self.lanes, "bf16")
        return self.b.intrinsic(self.isa.bf16_convert, kind, [high, low])

    def product(self, acc: ir.Value, a: ir.Value, w: ir.Value) -> ir.Value:
        """`acc + sum over the pair`, lane by lane, of two vectors of words."""
        b = self.b
        if self.pair == 1:
            return b.fma(a, w, acc)
        kind = vec(2 * self.lanes, "bf16")
        operands = [acc, b.bitcast(a, kind), b.bitcast(w, kind)]
        return b.intrinsic(self.isa.bf16_dot, vec(self.lanes, "f32"), operands)

    def row_words(
        self, source: ir.Value, at: Sequence[Index], first: int, scale: float
    ) -> ir.Value:
        """Words of the columns `first`... of one row of a head, zero past the head's end."""
        b, values = self.b, []
        *lead, start = at
        for i in range(self.pair):
            column = first + i * self.lanes
            valid = min(self.lanes, self.kernel.dim - column)
            if valid <= 0:
                values.append(b.f32(0.0, self.lanes))
                continue
            kind = vec(self.lanes, "f32")
            x = b.load(source, [*lead, b.offset(start, column)], kind, valid)
            values.append(x if scale == 1.0 else b.mul(x, b.f32(scale, self.lanes)))
        return self.words(values)


def pack(kernel: Attention, operands: Sequence[Operand]) -> list[ir.Value]:
    """k as [B, heads, D / pair, keys'], v as [B, heads, keys' / pair, D'], zeros at the ends."""

    def body(
        b: Builder, ids: Sequence[Index], tensors: Sequence[ir.Value], tiles: Sequence[Tile]
    ) -> None:
        head, batch = ids
        _pack_keys(Lanes(kernel, b), tensors[0], tiles[0], batch, head)
        _pack_values(Lanes(kernel, b), tensors[1], tiles[1], batch, head)

    def place(b: Builder, ids: Sequence[Index]) -> list[Index]:
        return [ids[1], ids[0], *([0] * (len(kernel.packed[0].shape) - 2))]

    outputs = [Output(kind, (1, 1, *kind.shape[2:]), place) for kind in kernel.packed]
    return dispatch(operands, outputs, [kernel.kv_heads, kernel.batch], body)


def _pack_keys(lanes: Lanes, source: ir.Value, tile: Tile, batch: Index, head: Index) -> None:
    kernel, b, n = lanes.kernel, lanes.b, lanes.lanes
    depth = math.ceil(kernel.dim / lanes.pair)
    start = b.offset(b.scaled(head, kernel.dim), kernel.starts[1])

    def place(d: int, first: Index) -> list[Index]:
        """Where word row d of the keys from `first` goes."""
        if kernel.on_tiles:
            return [0, 0, b.divided(first, n), d // n, d % n * n]
        return [0, 0, d, first]

    def keys(first: Index, count: int) -> None:
        for d in range(0, depth, n):
            rows = [
                lanes.row_words(source, [batch, b.offset(first, r), start], d * lanes.pair, 1.0)
                if r < count
                else b.constant(lanes.word, 0)
                for r in range(n)
            ]
            columns = transpose(b, rows)
            for i, column in enumerate(columns if kernel.on_tiles else columns[: depth - d]):
                b.store(column, tile, place(d + i, first))

    whole, tail = divmod(kernel.keys, n)
    if whole:
        with b.loop(0, whole * n, n, writes=[tile]) as loop:
            keys(loop.index, n)
    for first in range(whole * n, kernel.padded_keys, n):
        keys(first, tail if first == whole * n else 0)


def _pack_values(lanes: Lanes, source: ir.Value, tile: Tile, batch: Index, head: Index) -> None:
    kernel, b, n, pair = lanes.kernel, lanes.b, lanes.lanes, lanes.pair
    start = b.offset(b.scaled(head, kernel.dim), kernel.starts[2])

    def step(i: Index, count: int) -> None:
        """One row of the result: `count` rows of v, in pairs."""
        for column in range(0, kernel.padded_dim, n):
            valid = min(n, kernel.dim - column)
            values = [b.f32(0.0, n)] * pair
            for r in range(count):
                at = [batch, b.offset(b.scaled(i, pair), r), b.offset(start, column)]
                values[r] = b.load(source, at, vec(n, "f32"), valid)
            to = [0, 0, i, column]
            if kernel.on_tiles:
                to = [0, 0, column // n, b.divided(i, n), b.scaled(b.modulo(i, n), n)]
            b.store(_interleaved(lanes, values), tile, to)

    whole, tail = divmod(kernel.keys, pair)
    if whole:
        with b.loop(0, whole, writes=[tile]) as loop:
            step(loop.index, pair)
    if tail:
        step(whole, tail)
    first = whole + (1 if tail else 0)
    if first < kernel.padded_keys // pair:
        with b.loop(first, kernel.padded_keys // pair, writes=[tile]) as loop:
            step(loop.index, 0)


def _interleaved(lanes: Lanes, values: Sequence[ir.Value]) -> ir.Value:
    """Words whose pair is lane i of both vectors."""
    b, n = lanes.b, lanes.lanes
    if lanes.pair == 1:
        return values[0]
    narrow = lanes.narrow(*values)
    order = [half * n + i for i in range(n) for half in (0, 1)]
    return b.bitcast(b.shuffle(narrow, narrow, order), lanes.word)


class Head:
    """The body of one workgroup: a block of rows of one head."""

    def __init__(
        self,
        kernel: Attention,
        b: Builder,
        tensors: Sequence[ir.Value],
        tile: Tile,
        row: Index,
        head: Index,
        batch: Index,
    ) -> None:
        self.kernel, self.b, self.tile = kernel, b, tile
        self.row, self.head, self.batch = row, head, batch
        self.ops = Lanes(kernel, b)
        self.lanes = self.ops.lanes
        self.group = b.divided(head, kernel.heads // kernel.kv_heads)
        self.q, self.k, self.v, *rest = tensors
        self.mask = rest.pop(0) if kernel.mask != "none" else None
        self.epilogue = Epilogue(
            b, kernel.epilogue, rest, lanes=self.lanes, vectors=0, column=0, n=kernel.dim
        )
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

    def emit(self) -> None:
        kernel, b = self.kernel, self.b
        full, rest = divmod(kernel.block, kernel.tile)
        if full:
            with b.loop(0, full * kernel.tile, kernel.tile, writes=[self.tile]) as loop:
                self._rows(loop.index, kernel.tile)
        if rest:
            self._rows(full * kernel.tile, rest)

    def _rows(self, first: Index, count: int) -> None:
        self._load_queries(first, count)
        self._scores(first, count)
        b = self.b
        even = count // TOGETHER * TOGETHER
        if even:
            with b.loop(0, even, TOGETHER) as loop:
                self._softmax([b.offset(loop.index, i) for i in range(TOGETHER)])
        if even < count:
            self._softmax(list(range(even, count)))
        self._values(first, count)

    def _load_queries(self, first: Index, count: int) -> None:
        b, kernel = self.b, self.kernel
        start = b.offset(b.scaled(self.head, kernel.dim), kernel.starts[0])
        scale = kernel.scale * LOG2_E
        with b.loop(0, count) as loop:
            row = b.offset(self.row, b.offset(first, loop.index))
            for i in range(0, kernel.dim, kernel.pair * self.lanes):
                words = self.ops.row_words(self.q, [self.batch, row, start], i, scale)
                b.put(words, self.queries, self._query_place(loop.index, i // kernel.pair))

    # Scores

    def _scores(self, first: Index, count: int) -> None:
        b, kernel, lanes = self.b, self.kernel, self.lanes
        width = max(1, (kernel.target.registers - 2) // (count + 1))
        whole, tail = divmod(kernel.keys, lanes)
        step = min(width, 12, max(1, whole))
        last = whole // step * step
        if last:
            with b.loop(0, last * lanes, step * lanes) as loop:
                self._score_tile(first, count, loop.index, step, None)
        if whole - last:
            self._score_tile(first, count, last * lanes, whole - last, None)
        if tail:
            self._score_tile(first, count, whole * lanes, 1, tail)
        for key in range(math.ceil(kernel.keys / lanes) * lanes, kernel.padded_keys, lanes):
            for i in range(count):
                b.put(b.f32(-math.inf, lanes), self.scores, [i, key])

    def _score_tile(
        self, first: Index, count: int, key: Index, vectors: int, valid: int | None
    ) -> None:
        """Scores of `count` rows and `vectors` vectors of keys from `key`."""
        b, lanes = self.b, self.lanes
        columns = [b.offset(key, j * lanes) for j in range(vectors)]
        acc = [self._masked(first, i, c, valid) for i in range(count) for c in columns]
        with b.loop(0, self.kernel.packed[0].shape[2], carry=acc) as loop:
            at = [self.batch, self.group, loop.index]
            keys = [b.load(self.k, [*at, c], self.ops.word) for c in columns]
            out = []
            for i in range(count):
                q = self._broadcast(self.queries, [i, loop.index])
                for j, k in enumerate(keys):
                    out.append(self.ops.product(loop.carried[i * vectors + j], q, k))
            loop.carried = out
        for i in range(count):
            for j, c in enumerate(columns):
                scores = b.keep(loop.carried[i * vectors + j], valid, -math.inf)
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

    def _broadcast(self, scratch: ir.Value, at: Sequence[Index]) -> ir.Value:
        one = self.b.get(scratch, at, ir.VectorType.get([1], self.ops.word.element_type))
        return self.b.broadcast(one, self.lanes)

    # Softmax

    def _softmax(self, rows: Sequence[Index]) -> None:
        """Probabilities of some rows, not yet divided by their sums; `inverse` holds 1 / sum.

        Rows go together so that their chains of dependent operations overlap.
        """
        b, lanes, pair = self.b, self.lanes, self.kernel.pair
        unit, keys = lanes * pair, self.kernel.padded_keys
        minus, zero = b.f32(-math.inf, lanes), b.f32(0.0, lanes)
        with b.loop(0, keys, unit, carry=[minus] * (len(rows) * pair)) as loop:
            loop.carried = [
                b.max(self._score(row, loop.index, i), loop.carried[r * pair + i])
                for r, row in enumerate(rows)
                for i in range(pair)
            ]
        largest = self._joined(loop.carried, b.max)
        repeated = [top for top in largest for _ in range(pair)]
        most = [b.join(part) for part in batches(repeated, WIDE)]
        with b.loop(0, keys // pair, lanes, carry=[zero] * (len(rows) * pair)) as loop:
            exps = []
            for part, tops in zip(batches(rows, WIDE // pair), most, strict=True):
                at = b.scaled(loop.index, pair)
                scores = b.join([self._score(row, at, i) for row in part for i in range(pair)])
                exps += b.split(exp2(b, b.sub(scores, tops), math.inf), lanes)
            for r, row in enumerate(rows):
                words = self.ops.words(exps[r * pair : (r + 1) * pair])
                b.put(words, self.probabilities, self._probability_place(row, loop.index))
            loop.carried = [b.add(t, e) for t, e in zip(loop.carried, exps, strict=True)]
        for row, most, total in zip(rows, largest, self._joined(loop.carried, b.add), strict=True):
            # A row of -inf has no softmax: inf - inf makes it NaN.
            inverse = b.div(b.f32(1.0, lanes), b.add(total, b.sub(most, most)))
            b.put(inverse, self.inverse, [row, 0])

    def _score(self, row: Index, key: Index, i: int) -> ir.Value:
        at = [row, self.b.offset(key, i * self.lanes)]
        return self.b.get(self.scores, at, vec(self.lanes, "f32"))

    def _joined(
        self, chains: Sequence[ir.Value], how: Callable[[ir.Value, ir.Value], ir.Value]
    ) -> list[ir.Value]:
        """`pair` chains of every row, and their lanes, combined."""
        pair = self.kernel.pair
        rows = [chains[i : i + pair] for i in range(0, len(chains), pair)]
        return [self.b.reduce(reduce(how, row), how) for row in rows]

    # Values

    def _values(self, first: Index, count: int) -> None:
        vectors = self.kernel.padded_dim // self.lanes
        width = max(1, min(12, (self.kernel.target.registers - 2) // (count + 1)))
        for start in range(0, vectors, width):
            self._value_tile(first, count, start, min(width, vectors - start))

    def _value_tile(self, first: Index, count: int, start: int, vectors: int) -> None:
        """Results of `count` rows, `vectors` vectors of the head from vector `start`."""
        b, lanes, kernel = self.b, self.lanes, self.kernel
        columns = [(start + j) * lanes for j in range(vectors)]
        acc = [b.f32(0.0, lanes)] * (count * vectors)
        with b.loop(0, kernel.padded_keys // kernel.pair, carry=acc) as loop:
            at = [self.batch, self.group, loop.index]
            values = [b.load(self.v, [*at, c], self.ops.word) for c in columns]
            out = []
            for i in range(count):
                p = self._broadcast(self.probabilities, [i, loop.index])
                for j, v in enumerate(values):
                    out.append(self.ops.product(loop.carried[i * vectors + j], p, v))
            loop.carried = out
        for i in range(count):
            inverse = b.get(self.inverse, [i, 0], vec(lanes, "f32"))
            for j, column in enumerate(columns):
                y = b.mul(loop.carried[i * vectors + j], inverse)
                y = self.epilogue.apply(y, [], 0, self.epilogue.row([]))
                at = [0, b.offset(first, i), column]
                b.store(y, self.tile, at, kernel.dim - column)
