"""The body of `Attention`: two dispatches, of which the second has a workgroup a block of rows.
A few rows have a body of their own."""

import math

from iree.compiler import ir
from iree.compiler.dialects import flow

from jq.kernels.attention.description import Attention
from jq.kernels.attention.few_rows import attend
from jq.kernels.attention.head import Head
from jq.kernels.attention.pack import pack
from jq.kernels.attention.skeleton import HeadPart, over_rows
from jq.kernels.emit import Builder, Index, Operands, Tile, Values, emit, mlir_type, vec
from jq.kernels.machine import ROWS, WORDS, amx

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
