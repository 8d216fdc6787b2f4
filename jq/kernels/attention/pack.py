"""Keys and values of `Attention` as its products read them."""

import math

from iree.compiler import ir

from jq.kernels.attention.description import Attention
from jq.kernels.attention.skeleton import over_heads
from jq.kernels.emit import Builder, Operands, Tile, Tiles, transpose
from jq.kernels.emit.values import Index, Indices, Position, Values, lanes_of, vec
from jq.kernels.machine.isa import CHAINS

LOWEST = -3.4028234663852886e38  # of the finite numbers


def shown(
    kernel: Attention,
    b: Builder,
    mask: ir.Value | None,
    batch: Index,
    row: Index,
    rows: Index,
    key: Index = 0,
    keys: int | None = None,
) -> tuple[Index, Index]:
    """The first of `keys` keys from `key` that the mask shows to one of some rows, and the end of
    the last, both counted from `key` as whole chains of a sum: of a key that is hidden to all the
    mask is -inf. (NaN is shown.)"""
    keys = kernel.padded_keys if keys is None else keys
    if mask is None or not kernel.skips:
        return 0, keys
    lanes, full = kernel.target.lanes, kernel.mask == "full"
    lowest = b.f32(LOWEST, lanes)
    none = [b.index(keys), b.index(0)]
    with b.loop(0, rows if full else 1, carry=none) as each:
        at = [batch, *([b.at_most(b.offset(row, each.index), kernel.queries - 1)] if full else [])]
        with b.loop(0, keys, lanes, carry=each.carried) as loop:
            place = b.at_most(b.offset(key, loop.index), kernel.keys - lanes)
            some = b.any_not_below(b.load(mask, [*at, place], vec(lanes, "f32")), lowest)
            first, reach = (Position(x, keys) for x in loop.carried)
            end = b.offset(loop.index, lanes)
            loop.carried = [
                b.select_index(some, b.smaller(first, loop.index), first.value),
                b.select_index(some, b.larger(reach, end), reach.value),
            ]
        each.carried = loop.carried
    first, reach = (Position(x, keys) for x in each.carried)
    whole = b.scaled(b.divided(first, CHAINS), CHAINS)
    end = b.scaled(b.divided(b.offset(reach, CHAINS - 1), CHAINS), CHAINS)
    return whole, b.at_most(end, keys)


class Lanes:
    """Loads and products in the kernel's precision."""

    def __init__(self, kernel: Attention, b: Builder) -> None:
        self.kernel, self.b, self.isa = kernel, b, kernel.target
        self.lanes, self.pair = self.isa.lanes, kernel.pair
        self.word = vec(self.lanes, "i32" if self.pair == 2 else "f32")

    def words(self, values: Values) -> ir.Value:
        """`pair` consecutive f32 vectors as one vector of words: bf16 pairs, or f32 itself."""
        return values[0] if self.pair == 1 else self.b.bitcast(self.narrow(*values), self.word)

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

    def row_words(self, source: ir.Value, at: Indices, first: int) -> ir.Value:
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
            values.append(b.load(source, [*lead, b.offset(start, column)], kind, valid))
        return self.words(values)


def pack(kernel: Attention, operands: Operands) -> list[ir.Value]:
    """k as [B, heads, D / pair, keys'], v as [B, heads, keys' / pair, D'], zeros at the ends. With
    a mask as third operand keys that it hides are left out."""

    def body(b: Builder, tensors: Values, tiles: Tiles, batch: Index, head: Index) -> None:
        k, v, *mask = tensors
        seen = shown(kernel, b, mask[0], batch, 0, kernel.queries) if mask else None
        _pack_keys(Lanes(kernel, b), k, tiles[0], batch, head, seen)
        _pack_values(Lanes(kernel, b), v, tiles[1], batch, head, seen)

    return over_heads(kernel, operands, body)


Seen = tuple[Index, Index] | None


def _pack_keys(
    lanes: Lanes, source: ir.Value, tile: Tile, batch: Index, head: Index, seen: Seen
) -> None:
    kernel, b, n = lanes.kernel, lanes.b, lanes.lanes
    depth = math.ceil(kernel.dim / lanes.pair)
    start = b.offset(b.scaled(head, kernel.dim), kernel.starts[1])

    def place(d: int, first: Index) -> list[Index]:
        """Place for word row d of the keys from `first` on."""
        if kernel.on_tiles:
            return [0, 0, b.divided(first, n), d // n, d % n * n]
        return [0, 0, d, first]

    def keys(first: Index, count: int) -> None:
        for d in range(0, depth, n):
            rows = [
                lanes.row_words(source, [batch, b.offset(first, r), start], d * lanes.pair)
                if r < count
                else b.constant(lanes.word, 0)
                for r in range(n)
            ]
            columns = transpose(b, rows)
            for i, column in enumerate(columns if kernel.on_tiles else columns[: depth - d]):
                b.store(column, tile, place(d + i, first))

    if seen:
        with b.loop(0, b.above(seen[1], seen[0]), n, writes=[tile]) as loop:
            keys(b.at_most(b.offset(seen[0], loop.index), kernel.keys - n), n)
        return
    b.sweep(kernel.keys, n, keys, writes=[tile])
    for first in range(math.ceil(kernel.keys / n) * n, kernel.padded_keys, n):
        keys(first, 0)


def _pack_values(
    lanes: Lanes, source: ir.Value, tile: Tile, batch: Index, head: Index, seen: Seen
) -> None:
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

    if seen:
        with b.loop(0, b.above(seen[1], seen[0]), writes=[tile]) as loop:
            step(b.at_most(b.offset(seen[0], loop.index), kernel.keys - 1), 1)
        return
    b.sweep(kernel.keys, pair, step, writes=[tile], counted=True)
    first = math.ceil(kernel.keys / pair)
    if first < kernel.padded_keys // pair:
        with b.loop(first, kernel.padded_keys // pair, writes=[tile]) as loop:
            step(loop.index, 0)


def _interleaved(lanes: Lanes, values: Values) -> ir.Value:
    """Words whose pair is lane i of both vectors."""
    b, n = lanes.b, lanes.lanes
    if lanes.pair == 1:
        return values[0]
    narrow = lanes.narrow(*values)
    order = [half * n + i for i in range(n) for half in (0, 1)]
    return b.bitcast(b.shuffle(narrow, narrow, order), lanes.word)


def scored(kernel: Attention, b: Builder, sums: ir.Value, mask: ir.Value) -> ir.Value:
    """`scale * sums + mask`, or the kernel's `fill` where the mask is not 0. The mask is added
    last, as in the program: a row whose keys are all hidden by a large number is rounded to equal
    scores. Nothing is multiplied by log2 e (it would overflow): `exp2` does that to differences."""
    lanes = lanes_of(sums)
    scale = b.f32(kernel.scale, lanes)
    if kernel.fill is None:
        return b.fma(sums, scale, mask)
    shown = sums if kernel.scale == 1.0 else b.mul(sums, scale)
    return b.select_equal(mask, b.f32(0.0, lanes), shown, b.f32(kernel.fill, lanes))
