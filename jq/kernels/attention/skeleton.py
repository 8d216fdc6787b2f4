"""The skeleton of every attention: a block of rows of one head.

for tile of rows:
  queries, as the product reads them
  scores = q k^T                          # `_score_tile`: rows by vectors of keys
  softmax of `together` rows at a time    # so that chains of dependent operations overlap
  out = probabilities v                   # `_value_tile`: rows by vectors of D"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from iree.compiler import ir

from jq.kernels.attention.heads import Heads
from jq.kernels.emit import Builder, Chains, Operands, Output, Tile, Tiles, batches, dispatch
from jq.kernels.emit.values import Index, Indices, Values, vec
from jq.kernels.epilogue.functions import exp2
from jq.kernels.epilogue.steps import LOG2_E
from jq.kernels.schedule.rows import split
from jq.kernels.tensor import TensorType

MAX_TILE_VECTORS = 12  # vectors of a tile
WIDE = 4  # vectors that go through a function as one


@dataclass(frozen=True)
class HeadPart:
    """The work of a workgroup: rows from `row` of one head of one sample."""

    row: Index
    head: Index
    batch: Index


class HeadRows(ABC):
    """The body of one workgroup. `mask` and `scores`, [rows, keys], are set by who knows them."""

    together: ClassVar[int]
    pair: int = 1  # vectors of scores that go to one of probabilities
    first: Index = 0  # the first key that is computed; another than 0 where pair is 1
    span: Index  # keys that are computed
    factor: float = LOG2_E  # what a score is multiplied with as an exponent of 2
    mask: ir.Value | None
    scores: ir.Value

    def __init__(self, kernel: Heads, b: Builder, tile: Tile, place: HeadPart) -> None:
        self.b, self.tile, self.isa, self.lanes = b, tile, kernel.target, kernel.target.lanes
        self.row, self.head, self._heads = place.row, place.head, kernel
        # Where a head's keys and values are, which several heads may share.
        self.shared = [place.batch, b.divided(place.head, kernel.heads // kernel.kv_heads)]

    def emit(self, wanted: Index) -> None:
        """The first `wanted` rows of the block."""
        b, tall, block = self.b, self._heads.tile, self._heads.block
        if not isinstance(wanted, int):
            with b.loop(0, wanted, tall, writes=[self.tile]) as loop:
                self._rows(b.at_most(loop.index, block - tall), tall)
            return
        b.sweep(block, tall, self._rows, writes=[self.tile])

    def _rows(self, first: Index, count: int) -> None:
        with self.b.loop(0, count) as loop:
            self._query(first, loop.index)
        self._scores(first, count)
        even = count // self.together * self.together
        if even:
            with self.b.loop(0, even, self.together) as loop:
                self._softmax([self.b.offset(loop.index, i) for i in range(self.together)])
        if even < count:
            self._softmax(list(range(even, count)))
        self._values(first, count)

    def _key(self, index: Index, keys: int) -> Index:
        """The index of a key, where some are computed together, counted from the first one."""
        at = self.b.offset(self.first, index)
        return self.b.at_most(at, self._heads.padded_keys - keys)

    def _word(self, index: Index) -> Index:
        """The same of a key or a pair of them."""
        return index if self.first == 0 else self._key(index, 1)

    @abstractmethod
    def _query(self, first: Index, i: Index) -> None:
        """A row of q as the product reads it."""

    def _width(self, count: int) -> int:
        """Vectors of a tile of so many rows."""
        return max(1, min(MAX_TILE_VECTORS, (self.isa.registers - 2) // (count + 1)))

    def _scores(self, first: Index, count: int) -> None:
        whole, tail = divmod(self._heads.keys, self.lanes)
        step = min(self._width(count), max(1, whole))
        if self._heads.skips:  # the last tile ends at the last key, and may compute some again
            with self.b.loop(0, self.span, step * self.lanes) as loop:
                key = self._key(loop.index, step * self.lanes)
                self._score_tile(first, count, key, step, None)
            return
        last = whole // step * step
        if last:
            with self.b.loop(0, last * self.lanes, step * self.lanes) as loop:
                self._score_tile(first, count, loop.index, step, None)
        if whole - last:
            self._score_tile(first, count, last * self.lanes, whole - last, None)
        if tail:
            self._score_tile(first, count, whole * self.lanes, 1, tail)

    @abstractmethod
    def _score_tile(
        self, first: Index, count: int, key: Index, vectors: int, valid: int | None
    ) -> None:
        """Scores of `count` rows and `vectors` vectors of keys from `key`."""

    def _hidden(self, mask: ir.Value, row: Index, column: Index, valid: int | None) -> ir.Value:
        """The mask's addend for a vector of scores of a row of the block."""
        at = [self.shared[0], column]
        if self._heads.mask == "full":
            at.insert(1, self.b.offset(self.row, row))
        return self.b.load(mask, at, vec(self.lanes, "f32"), valid)

    @abstractmethod
    def _softmax(self, rows: Indices) -> None:
        """Probabilities of some rows."""

    def _exponentials(
        self,
        rows: Indices,
        largest: Values,
        keys: Index,
        store: Callable[[Index, Index, Values], None],
    ) -> list[Callable[[], ir.Value]]:
        """`store(row, key / pair, vectors)` of 2^(factor (score - largest)) for each row; their
        sums, NaN where a score or all of them are no numbers."""
        b, lanes, pair = self.b, self.lanes, self.pair
        repeated = [top for top in largest for _ in range(pair)]
        most = [b.join(part) for part in batches(repeated, WIDE)]
        chains = Chains(lanes, pair)
        with b.loop(0, keys, lanes, carry=chains.start(b) * len(rows)) as loop:
            exps: list[ir.Value] = []
            at = self._key(b.scaled(loop.index, pair), lanes * pair)
            for part, tops in zip(batches(rows, WIDE // pair), most, strict=True):
                scores = b.join([self._score(row, at, i) for row in part for i in range(pair)])
                exps += b.split(exp2(b, b.sub(scores, tops), self.factor, math.inf), lanes)
            each = split(exps, len(rows))
            for row, own in zip(rows, each, strict=True):
                store(row, loop.index if self.first == 0 else at, own)
            sums = zip(split(loop.carried, len(rows)), each, strict=True)
            loop.carried = [v for own, more in sums for v in chains.add(b, own, more)]
        return [partial(chains.joined, b, own) for own in split(loop.carried, len(rows))]

    def _score(self, row: Index, key: Index, i: int) -> ir.Value:
        at = [row, self.b.offset(key, i * self.lanes)]
        return self.b.get(self.scores, at, vec(self.lanes, "f32"))

    def _values(self, first: Index, count: int) -> None:
        vectors, width = self._heads.padded_dim // self.lanes, self._width(count)
        for start in range(0, vectors, width):
            self._value_tile(first, count, start, min(width, vectors - start))

    @abstractmethod
    def _value_tile(self, first: Index, count: int, start: int, vectors: int) -> None:
        """Results of `count` rows, `vectors` vectors of the head from vector `start`."""

    def _products(
        self,
        acc: Values,
        depth: Index,
        rows: ir.Value,
        source: ir.Value,
        columns: Indices,
        place: Callable[[Index], Index] = lambda step: step,
    ) -> list[ir.Value]:
        """The accumulators after `depth` steps of the rows of a scratch by packed k or v."""
        with self.b.loop(0, depth, carry=acc) as loop:
            vectors, out = self._right(source, place(loop.index), columns), []
            for i in range(len(acc) // len(columns)):
                x = self._left(rows, i, place(loop.index))
                for j, v in enumerate(vectors):
                    out.append(self._product(loop.carried[i * len(vectors) + j], x, v))
            loop.carried = out
        return loop.carried

    @abstractmethod
    def _left(self, scratch: ir.Value, row: int, step: Index) -> ir.Value:
        """The value of a row at a step, in every lane."""

    @abstractmethod
    def _right(self, source: ir.Value, step: Index, columns: Indices) -> list[ir.Value]:
        """Vectors of packed k or v."""

    @abstractmethod
    def _product(self, acc: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
        """An accumulator after a step."""


Body = Callable[[Builder, Values, Tile, HeadPart], None]


def over_rows(kernel: Heads, operands: Operands, result: TensorType, body: Body) -> list[ir.Value]:
    """The dispatch that attends: `body(b, tensors, tile, place)` for each workgroup."""

    def row(b: Builder, ids: Indices) -> Index:
        return b.part(ids[0], kernel.block, kernel.queries)

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        return [ids[2], row(b, ids), b.scaled(ids[1], kernel.dim)]

    def workgroup(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        body(b, tensors, tiles[0], HeadPart(row(b, ids), ids[1], ids[2]))

    output = Output(result, (1, kernel.block, kernel.dim), offsets)
    blocks = math.ceil(kernel.queries / kernel.block)
    return dispatch(operands, [output], [blocks, kernel.heads, kernel.batch], workgroup)


def over_heads(
    kernel: Heads, operands: Operands, body: Callable[[Builder, Values, Tiles, Index, Index], None]
) -> list[ir.Value]:
    """The dispatch that packs: `body(b, tensors, tiles, batch, head)` for each head of k and v."""

    def output(kind: TensorType) -> Output:
        rest = kind.shape[2:]
        return Output(kind, (1, 1, *rest), lambda b, ids: [ids[1], ids[0], *([0] * len(rest))])

    def workgroup(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        body(b, tensors, tiles, ids[1], ids[0])

    outputs = [output(kind) for kind in kernel.packed]
    return dispatch(operands, outputs, [kernel.kv_heads, kernel.batch], workgroup)
