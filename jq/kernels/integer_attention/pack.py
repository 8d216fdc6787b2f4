"""`IntegerAttention`: what is found before its rows: keys and values packed, what a mask shows."""

import math

from iree.compiler import ir

from jq.kernels.attention.skeleton import over_heads
from jq.kernels.emit import Builder, Operands, Tiles, interleave, transpose
from jq.kernels.emit.values import Index, Position, Values, vec
from jq.kernels.integer_attention.description import SPREAD, UNDERFLOW, IntegerAttention
from jq.kernels.machine import dot

QUERY, KEY, VALUE, PROBABILITY = range(4)  # places of the zero points
SCORE, SCALE = range(2)  # places of the factors


class CodePacking:
    """Common base of both dispatches: the kernel, and the offset of codes read as unsigned."""

    def __init__(self, kernel: IntegerAttention, b: Builder, zeros: ir.Value) -> None:
        self.kernel, self.b, self.isa = kernel, b, kernel.target
        self.lanes, self.group = self.isa.lanes, kernel.group
        self.offset = 128 if self.isa.dot.lhs_unsigned else 0
        self.zeros = zeros

    def zero(self, which: int) -> ir.Value:
        """A zero point in every lane."""
        return self.b.broadcast(self.b.load(self.zeros, [which], vec(1, "i32")), self.lanes)

    def summed(self, total: ir.Value, codes: ir.Value) -> ir.Value:
        """`total` with the sum of each lane's group."""
        ones = dot.splat(self.b, self.isa, 1)
        return dot.dot(self.b, self.isa, total, ones, dot.operand(self.b, self.isa, codes))

    def start(self, zero: int, total: ir.Value) -> ir.Value:
        """The start of a product, from the sum of its right operand: the left one's offset."""
        b = self.b
        shift = b.add(self.zero(zero), b.i32(self.offset, self.lanes))
        return b.sub(b.i32(0, self.lanes), b.mul(shift, total))


def reach(
    kernel: IntegerAttention, b: Builder, factors: ir.Value, mask: ir.Value | None, batch: Index
) -> Index:
    """Keys up to the last one that the mask shows, in whole vectors: `IntegerAttention.spread` says
    which key is hidden. Of equal masks none is, nor where a number is NaN."""
    if not kernel.skips or mask is None:
        return kernel.padded_keys
    lanes, kind = kernel.target.lanes, vec(kernel.target.lanes, "f32")
    with b.loop(0, kernel.keys, lanes, carry=[b.f32(-math.inf, lanes)]) as loop:
        loop.carried = [b.max(b.load(mask, [batch, loop.index], kind), loop.carried[0])]
    most = b.reduce(loop.carried[0], b.max)
    factor = b.abs(b.broadcast(b.load(factors, [SCORE], vec(1, "f32")), lanes))
    scores = b.mul(b.mul(factor, b.f32(kernel.largest_sum, lanes)), b.f32(SPREAD, lanes))
    spread = b.add(scores, b.f32(UNDERFLOW, lanes))
    limit = b.sub(most, spread)
    with b.loop(0, kernel.keys, lanes, carry=[b.index(lanes)]) as loop:
        shown = b.any_not_below(b.load(mask, [batch, loop.index], kind), limit)
        loop.carried = [b.select_index(shown, b.offset(loop.index, lanes), loop.carried[0])]
    return Position(loop.carried[0], kernel.keys)


def pack(kernel: IntegerAttention, operands: Operands) -> list[ir.Value]:
    """k, v and what their products start from (`IntegerAttention.packed`); zeros at the ends."""

    def body(b: Builder, tensors: Values, tiles: Tiles, batch: Index, head: Index) -> None:
        codes = CodePacking(kernel, b, tensors[2])
        _pack_keys(codes, tensors[0], tiles[:2], batch, head)
        shown = reach(kernel, b, tensors[3], tensors[4], batch) if kernel.skips else None
        _pack_values(codes, tensors[1], tiles[2:], batch, head, shown)

    return over_heads(kernel, operands, body)


def _pack_keys(
    codes: CodePacking, source: ir.Value, tiles: Tiles, batch: Index, head: Index
) -> None:
    """Squares of `lanes` keys x `lanes` groups, transposed."""
    kernel, b, n, group = codes.kernel, codes.b, codes.lanes, codes.group
    begin = b.offset(b.scaled(head, kernel.dim), kernel.starts[1])
    word, chunk = vec(n, f"i{8 * group}"), vec(kernel.chunk, "i8")

    def keys(first: Index, count: int) -> None:
        total = b.i32(0, n)
        for d in range(0, kernel.dim, kernel.chunk):
            places = ([batch, b.offset(first, r), b.offset(begin, d)] for r in range(count))
            rows = [b.load(source, place, chunk, kernel.dim - d) for place in places]
            rows += [b.constant(chunk, 0) for _ in range(count, n)]
            columns = transpose(b, [b.bitcast(row, word) for row in rows])
            depth = math.ceil((kernel.dim - d) / group)
            for i, column in enumerate(columns[:depth]):
                square = b.bitcast(column, chunk)
                b.store(square, tiles[0], [0, 0, d // group + i, b.scaled(first, group)])
                total = codes.summed(total, square)
        b.store(codes.start(QUERY, total), tiles[1], [0, 0, first])

    b.sweep(kernel.keys, n, keys, writes=tiles)


def _pack_values(
    codes: CodePacking,
    source: ir.Value,
    tiles: Tiles,
    batch: Index,
    head: Index,
    shown: Index | None,
) -> None:
    """Groups of rows, interleaved; those after the first `shown` keys are not read."""
    kernel, b, n, group = codes.kernel, codes.b, codes.lanes, codes.group
    begin = b.offset(b.scaled(head, kernel.dim), kernel.starts[2])
    columns = range(0, kernel.padded_dim, n)

    def step(at: Index, totals: Values, count: int) -> list[ir.Value]:
        """One row of the result, from `count` rows of v."""
        out = []
        for column, total in zip(columns, totals, strict=True):
            rows = [b.constant(vec(n, "i8"), 0)] * group
            for r in range(count):
                row = b.offset(b.scaled(at, group), r)
                where = [batch, row, b.offset(begin, column)]
                rows[r] = b.load(source, where, vec(n, "i8"), kernel.dim - column)
            joined = interleave(b, rows)
            b.store(joined, tiles[0], [0, 0, at, column * group])
            out.append(codes.summed(total, joined))
        return out

    totals = [b.i32(0, n)] * len(columns)
    whole, tail = divmod(kernel.keys, group)
    if whole:
        count = whole if shown is None else b.divided(shown, group)
        with b.loop(0, count, carry=totals, writes=tiles[:1]) as loop:
            loop.carried = step(loop.index, loop.carried, group)
        totals = loop.carried
    if tail:
        totals = step(whole, totals, tail)
    for column, total in zip(columns, totals, strict=True):
        b.store(codes.start(PROBABILITY, total), tiles[1], [0, 0, column])
