"""The skeleton of every attention: a block of rows of one head.

for tile of rows:
  queries, as the product reads them
  scores = q k^T                          # `_score_tile`: rows by vectors of keys
  softmax of `together` rows at a time    # so that chains of dependent operations overlap
  out = probabilities v                   # `_value_tile`: rows by vectors of D
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from iree.compiler import ir

from jq.kernels.attention.heads import Heads
from jq.kernels.build.bodies import Operands
from jq.kernels.build.builder import Builder, Tile, Tiles
from jq.kernels.build.dispatch import Output, dispatch
from jq.kernels.build.values import Index, Indices, Values
from jq.kernels.tensor import TensorType

MOST = 12  # vectors of a tile
WIDE = 4  # vectors that go through a function as one


class HeadRows(ABC):
    """The body of one workgroup."""

    together: ClassVar[int]

    def __init__(self, kernel: Heads, b: Builder, tile: Tile, row: Index, head: Index) -> None:
        self.b, self.tile, self.isa, self.lanes = b, tile, kernel.target, kernel.target.lanes
        self.row, self.head, self._heads = row, head, kernel

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

    @abstractmethod
    def _query(self, first: Index, i: Index) -> None:
        """A row of q as the product reads it."""

    def _width(self, count: int) -> int:
        """Vectors of a tile of so many rows."""
        return max(1, min(MOST, (self.isa.registers - 2) // (count + 1)))

    def _scores(self, first: Index, count: int) -> None:
        whole, tail = divmod(self._heads.keys, self.lanes)
        step = min(self._width(count), max(1, whole))
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

    @abstractmethod
    def _softmax(self, rows: Indices) -> None:
        """Probabilities of some rows."""

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
        count: int,
        right: Callable[[Index], list[ir.Value]],
        left: Callable[[int, Index], ir.Value],
        product: Callable[[ir.Value, ir.Value, ir.Value], ir.Value],
    ) -> list[ir.Value]:
        """The accumulators of `count` rows after `depth` steps."""
        with self.b.loop(0, depth, carry=acc) as loop:
            vectors, out = right(loop.index), []
            for i in range(count):
                x = left(i, loop.index)
                for j, v in enumerate(vectors):
                    out.append(product(loop.carried[i * len(vectors) + j], x, v))
            loop.carried = out
        return loop.carried


Body = Callable[[Builder, Values, Tile, Index, Index, Index], None]


def over_rows(kernel: Heads, operands: Operands, result: TensorType, body: Body) -> list[ir.Value]:
    """The dispatch that attends: `body(b, tensors, tile, row, head, batch)` for each workgroup."""

    def row(b: Builder, ids: Indices) -> Index:
        return b.at_most(b.scaled(ids[0], kernel.block), kernel.queries - kernel.block)

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        return [ids[2], row(b, ids), b.scaled(ids[1], kernel.dim)]

    def workgroup(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        body(b, tensors, tiles[0], row(b, ids), ids[1], ids[2])

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
