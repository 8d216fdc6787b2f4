"""`Attention` of a few rows, such as a token that is decoded: k and v are read where they lie, once
for all heads that share them, and only as far as the mask shows them.

    dispatch 1, workgroup (keys, head of k, batch), unless the mask hides its keys:
      for vector of keys:
        for lanes of D: a square of k, transposed; scores of every row += q k
    dispatch 2, workgroup (columns, head of v, batch):
      per row: max of the scores that are shown
      for `CHAINS` keys that are shown:
        e = 2^(score - max), summed; out of every row += e v
      out / sum, epilogue, store

Bits are those of `Head`: sums over D and over keys run in the same order, and what is left out has
the probability 0 there."""

import math

from iree.compiler import ir

from jq.kernels.attention.description import Attention
from jq.kernels.attention.pack import scored, shown
from jq.kernels.emit import Builder, Chains, Operands, Output, Tiles, dispatch, transpose
from jq.kernels.emit.values import Index, Indices, Values, vec
from jq.kernels.epilogue.emission import Columns, Epilogue
from jq.kernels.epilogue.functions import exp2
from jq.kernels.machine import CHAINS, tiling
from jq.kernels.schedule.rows import split
from jq.kernels.tensor import TensorType


class FewRows:
    """Common base of both dispatches for one head of k and v. A row is a query and a head of the
    group that shares them."""

    def __init__(self, kernel: Attention, b: Builder, batch: Index, shared: Index) -> None:
        self.kernel, self.b, self.batch, self.shared = kernel, b, batch, shared
        self.lanes = kernel.target.lanes
        group = kernel.heads // kernel.kv_heads
        self.rows = [(query, head) for query in range(kernel.queries) for head in range(group)]
        self.first_head = b.scaled(shared, group)
        self.kind = vec(self.lanes, "f32")

    def start(self, which: int) -> Index:
        """The first column of the head in k (1) or v (2)."""
        b, kernel = self.b, self.kernel
        return b.offset(b.scaled(self.shared, kernel.dim), kernel.starts[which])

    def one(self, scratch: ir.Value, at: Indices) -> ir.Value:
        """A number of the scratch in every lane."""
        return self.b.broadcast(self.b.get(scratch, at, vec(1, "f32")), self.lanes)

    def queries(self, source: ir.Value) -> ir.Value:
        """The rows of q, with zeros after D."""
        b, kernel, lanes = self.b, self.kernel, self.lanes
        scratch = b.scratch([len(self.rows), kernel.padded_dim], "f32")
        for i, (query, head) in enumerate(self.rows):
            begin = b.scaled(b.offset(self.first_head, head), kernel.dim)
            for d in range(0, kernel.dim, lanes):
                at = [self.batch, query, b.offset(b.offset(begin, kernel.starts[0]), d)]
                b.put(b.load(source, at, self.kind, kernel.dim - d), scratch, [i, d])
        return scratch

    def scores(self, q: ir.Value, k: ir.Value, mask: ir.Value | None, key: Index) -> Values:
        """The scores of every row with a vector of keys."""
        b, lanes, start = self.b, self.lanes, self.start(1)

        def add(acc: Values, d: Index, size: int) -> list[ir.Value]:
            rows = [
                b.load(k, [self.batch, b.offset(key, r), b.offset(start, d)], self.kind, size)
                for r in range(lanes)
            ]
            out = list(acc)
            for i, column in enumerate(transpose(b, rows)[:size]):
                for r in range(len(out)):
                    out[r] = b.fma(self.one(q, [r, b.offset(d, i)]), column, out[r])
            return out

        sums = b.fold(self.kernel.dim, lanes, add, [b.f32(0.0, lanes)] * len(self.rows))
        if mask is None:
            return sums
        return [
            scored(self.kernel, b, acc, self._hidden(mask, query, key))
            for acc, (query, _) in zip(sums, self.rows, strict=True)
        ]

    def _hidden(self, mask: ir.Value, query: int, key: Index) -> ir.Value:
        row = [query] if self.kernel.mask == "full" else []
        return self.b.load(mask, [self.batch, *row, key], self.kind)

    def values(
        self, scores: ir.Value, v: ir.Value, seen: tuple[Index, Index], column: Index, width: int
    ) -> list[ir.Value]:
        """The vectors of `width` columns of every row, row by row."""
        b, lanes, kernel, rows = self.b, self.lanes, self.kernel, len(self.rows)
        first, reach = seen
        span, last = b.above(reach, first), kernel.keys - CHAINS
        steps = range(0, CHAINS, lanes)

        def score(row: int, key: Index, step: int) -> ir.Value:
            at = [self.batch, self.shared, row, b.offset(key, step)]
            return b.load(scores, at, self.kind)

        with b.loop(0, span, CHAINS, carry=[b.f32(-math.inf, lanes)] * rows) as loop:
            key = b.at_most(b.offset(first, loop.index), last)
            for row in range(rows):
                for step in steps:
                    loop.carried[row] = b.max(score(row, key, step), loop.carried[row])
        most = [b.reduce(x, b.max) for x in loop.carried]
        chains, taken = Chains(lanes), b.scratch([rows, CHAINS], "f32")
        places = range(0, width, lanes)
        begin = chains.start(b) * rows + [b.f32(0.0, lanes)] * (rows * len(places))
        with b.loop(0, span, CHAINS, carry=begin) as loop:
            key = b.at_most(b.offset(first, loop.index), last)
            sums, out = split(loop.carried[: chains.vectors * rows], rows), loop.carried
            out = out[chains.vectors * rows :]
            for row in range(rows):
                below = [b.sub(score(row, key, s), most[row]) for s in steps]
                e = [exp2(b, x, kernel.factor, math.inf) for x in below]
                for step, value in zip(steps, e, strict=True):
                    b.put(value, taken, [row, step])
                sums[row] = chains.add(b, sums[row], e)
            for i in range(CHAINS):
                at = [self.batch, b.offset(key, i)]
                line = [b.load(v, [*at, b.offset(column, p)], self.kind, width - p) for p in places]
                for row in range(rows):
                    e = self.one(taken, [row, i])
                    for j, x in enumerate(line):
                        to = row * len(line) + j
                        out[to] = b.fma(e, x, out[to])
            loop.carried = [x for own in sums for x in own] + out
        sums, out = split(loop.carried[: chains.vectors * rows], rows), loop.carried
        found = []
        for row, own in enumerate(split(out[chains.vectors * rows :], rows)):
            inverse = b.div(b.f32(1.0, lanes), chains.joined(b, sums[row]))
            found += [b.mul(x, inverse) for x in own]
        return found


KEYS = 32  # of a workgroup
VECTORS = 4  # columns of a workgroup, in vectors


def _spread(b: Builder, number: Index, parts: int) -> Index:
    """The part of a workgroup: a thread takes `CHUNK` workgroups one after the other, and the keys
    that a mask shows lie side by side."""
    if parts % tiling.CHUNK:
        return number
    within = b.scaled(b.modulo(number, tiling.CHUNK), parts // tiling.CHUNK)
    return b.offset(within, b.divided(number, tiling.CHUNK))


def attend(kernel: Attention, operands: Operands) -> ir.Value:
    """The attention, f32 [B, Sq, heads, D]."""
    q, k, v, *rest = operands
    masked = kernel.mask != "none"
    scores = _scores(kernel, [q, k, *rest[: int(masked)]])
    return _values(kernel, [(scores, _kind(kernel)), v, *rest])


def _kind(kernel: Attention) -> TensorType:
    """The scores that one dispatch stores for the other."""
    rows = kernel.heads // kernel.kv_heads * kernel.queries
    return TensorType((kernel.batch, kernel.kv_heads, rows, kernel.keys), "f32")


def _scores(kernel: Attention, operands: Operands) -> ir.Value:
    """The first dispatch, of q, k and the mask."""
    count, lanes, kind = min(KEYS, kernel.keys), kernel.target.lanes, _kind(kernel)
    parts, last = math.ceil(kernel.keys / count), kernel.keys - lanes

    def first_key(b: Builder, ids: Indices) -> Index:
        part = _spread(b, ids[0], parts)
        return b.part(part, count, kernel.keys)

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        rows, begin = FewRows(kernel, b, ids[2], ids[1]), first_key(b, ids)
        mask = tensors[2] if kernel.mask != "none" else None
        low, end = shown(kernel, b, mask, ids[2], 0, kernel.queries, begin, count)
        for i in range(len(rows.rows)):
            for place in range(0, count, lanes):
                b.store(b.f32(-math.inf, lanes), tiles[0], [0, 0, i, place])
        span = b.above(end, low)
        with b.loop(0, b.at_most(span, 1), writes=tiles):
            queries = rows.queries(tensors[0])
            with b.loop(0, span, lanes, writes=tiles) as loop:
                at = b.at_most(b.offset(low, loop.index), count - lanes)
                key = b.at_most(b.offset(begin, at), last)
                for i, value in enumerate(rows.scores(queries, tensors[1], mask, key)):
                    b.store(value, tiles[0], [0, 0, i, at])

    tile = Output(
        kind, (1, 1, kind.shape[2], count), lambda b, ids: [ids[2], ids[1], 0, first_key(b, ids)]
    )
    (scores,) = dispatch(operands, [tile], [parts, kernel.kv_heads, kernel.batch], body)
    return scores


def _values(kernel: Attention, operands: Operands) -> ir.Value:
    """The second dispatch, of scores, v, the mask and what the epilogue reads."""
    lanes, group = kernel.target.lanes, kernel.heads // kernel.kv_heads
    width = min(kernel.dim, VECTORS * lanes)

    def column(b: Builder, ids: Indices) -> Index:
        return b.part(ids[0], width, kernel.dim)

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        rows, (scores, v, *more) = FewRows(kernel, b, ids[2], ids[1]), tensors
        mask = more.pop(0) if kernel.mask != "none" else None
        epilogue = Epilogue(b, kernel.epilogue, more, Columns(lanes, 0, 0, kernel.dim))
        seen = shown(kernel, b, mask, ids[2], 0, kernel.queries)
        at = b.offset(rows.start(2), column(b, ids))
        for (query, head), own in zip(
            rows.rows, split(rows.values(scores, v, seen, at, width), len(rows.rows)), strict=True
        ):
            for j, x in enumerate(own):
                y = epilogue.apply(kernel.target, x, [], 0, epilogue.row([]))
                b.store(y, tiles[0], [0, query, head, j * lanes], width - j * lanes)

    shape = (kernel.batch, kernel.queries, kernel.heads, kernel.dim)
    out = Output(
        TensorType(shape, kernel.results[0].element),
        (1, kernel.queries, group, width),
        lambda b, ids: [ids[2], 0, b.scaled(ids[1], group), column(b, ids)],
    )
    grid = [math.ceil(kernel.dim / width), kernel.kv_heads, kernel.batch]
    (found,) = dispatch(operands, [out], grid, body)
    return found
