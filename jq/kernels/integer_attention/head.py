"""`IntegerAttention` in vectors: the body of a head."""

import itertools
import math

from iree.compiler import ir

from jq.kernels.attention.skeleton import HeadPart, HeadRows, over_rows
from jq.kernels.emit import Builder, Index, Indices, Operands, Tile, Values, emit, high, vec
from jq.kernels.epilogue.emission import Columns, Epilogue, Row
from jq.kernels.epilogue.functions import MAGIC, MAGIC_BITS
from jq.kernels.integer_attention import pack as packing
from jq.kernels.integer_attention.description import IntegerAttention
from jq.kernels.machine import dot
from jq.kernels.machine.dot import PACKED, pack_bytes
from jq.kernels.schedule.rows import split, wanted_rows


class CodesHead(HeadRows):
    """The body of one workgroup."""

    together = 8

    def __init__(
        self, kernel: IntegerAttention, b: Builder, tensors: Values, tile: Tile, place: HeadPart
    ) -> None:
        super().__init__(kernel, b, tile, place)
        self.kernel, self.group = kernel, kernel.group
        self.q, self.k, self.k_start, self.v, self.v_start, zeros, self.factors, *rest = tensors
        self.codes = packing.CodePacking(kernel, b, zeros)
        self.mask = rest.pop(0) if kernel.mask != "none" else None
        vectors = kernel.padded_dim // self.lanes
        columns = Columns(self.lanes, vectors, b.scaled(place.head, kernel.dim), kernel.columns)
        self.epilogue = Epilogue(b, kernel.epilogue, rest, columns)
        self.span = packing.reach(kernel, b, self.factors, self.mask, place.batch)
        rows, lanes = kernel.tile, self.lanes
        beyond = (PACKED - 1) * lanes * kernel.skips  # zeros after the reach, to whole packs
        self.queries = b.scratch([rows, kernel.query_bytes], self.isa.dot.element)
        self.scores = b.scratch([rows, kernel.padded_keys + beyond], "f32")
        self.probabilities = b.scratch([rows, kernel.padded_keys + beyond], self.isa.dot.element)
        self.largest = b.scratch([rows, lanes], "f32")
        self.score_start = b.scratch([rows, lanes], "i32")  # what the zero point of k adds
        self.value_start = b.scratch([rows, lanes], "i32")  # the row's part of the accumulators

    def _query(self, first: Index, i: Index) -> None:
        b, kernel = self.b, self.kernel
        row = b.offset(self.row, b.offset(first, i))
        begin = b.offset(b.scaled(self.head, kernel.dim), kernel.starts[0])
        kind, total = vec(kernel.chunk, "i8"), b.i32(0, self.lanes)
        for d in range(0, kernel.dim, kernel.chunk):
            at = [self.shared[0], row, b.offset(begin, d)]
            x = b.load(self.q, at, kind, kernel.dim - d)
            b.put(dot.operand(b, self.isa, x, bool(self.codes.offset)), self.queries, [i, d])
            total = self.codes.summed(total, x)
        b.put(b.f32(-math.inf, self.lanes), self.largest, [i, 0])
        if self.mask is not None:
            nothing = b.mul(self.codes.zero(packing.QUERY), b.i32(kernel.dim, self.lanes))
            real = b.sub(nothing, b.reduce(total, b.add))
            b.put(b.mul(self.codes.zero(packing.KEY), real), self.score_start, [i, 0])

    def _right(self, source: ir.Value, step: Index, columns: Indices) -> list[ir.Value]:
        b, lead = self.b, [*self.shared, step]
        places = [[*lead, b.scaled(c, self.group)] for c in columns]
        return [dot.weights(b, self.isa, source, place) for place in places]

    def _left(self, scratch: ir.Value, row: int, step: Index) -> ir.Value:
        return dot.staged(self.b, self.isa, scratch, [row, self.b.scaled(step, self.group)])

    def _product(self, acc: ir.Value, left: ir.Value, right: ir.Value) -> ir.Value:
        return dot.dot(self.b, self.isa, acc, left, right)

    def _score_tile(
        self, first: Index, count: int, key: Index, vectors: int, valid: int | None
    ) -> None:
        """The zero point of k adds the same to every score of a row: it is left out where no mask
        is added, as no softmax sees it."""
        b, lanes = self.b, self.lanes
        kind = vec(lanes, "i32")
        columns = [b.offset(key, j * lanes) for j in range(vectors)]
        starts = [b.load(self.k_start, [*self.shared, c], kind) for c in columns] * count
        if self.mask is not None:
            rows = [b.get(self.score_start, [i, 0], kind) for i in range(count)]
            starts = [b.add(x, rows[i // vectors]) for i, x in enumerate(starts)]
        depth = self.kernel.packed[0].shape[2]
        acc = self._products(starts, depth, self.queries, self.k, columns)
        factor = self._factor(packing.SCORE)
        for i in range(count):
            largest = b.get(self.largest, [i, 0], vec(lanes, "f32"))
            for j, c in enumerate(columns):
                score = b.to_f32(acc[i * vectors + j])
                score = self._masked(b.rounded(b.mul(score, factor)), b.offset(first, i), c, valid)
                b.put(score, self.scores, [i, c])
                largest = b.max(score, largest)
            b.put(largest, self.largest, [i, 0])

    def _factor(self, which: int) -> ir.Value:
        return self.b.broadcast(self.b.load(self.factors, [which], vec(1, "f32")), self.lanes)

    def _masked(self, score: ir.Value, row: Index, column: Index, valid: int | None) -> ir.Value:
        b = self.b
        if self.mask is not None:
            score = b.add(score, self._hidden(self.mask, row, column, valid))
        return b.keep(score, valid, -math.inf)

    def _softmax(self, rows: Indices) -> None:
        """Codes of some rows."""
        b, lanes = self.b, self.lanes
        kind = vec(lanes, "f32")
        largest = [b.reduce(b.get(self.largest, [row, 0], kind), b.max) for row in rows]

        def store(row: Index, key: Index, exps: Values) -> None:
            b.put(exps[0], self.scores, [row, key])

        sums = self._exponentials(rows, largest, self.span, store)
        scale = self._factor(packing.SCALE)
        factors = []
        for total in sums:
            # Of a row that has no softmax the sum is NaN: its probabilities get the code of 0.
            inverse = b.div(b.f32(1.0, lanes), b.mul(total(), scale))
            factors.append(b.zero_if_nan(inverse))
        self._quantize(rows, factors)

    def _quantize(self, rows: Indices, factors: Values) -> None:
        if self.isa.packs and self.isa.dot.element == "i8" and self.codes.offset:
            self._quantize_packed(rows, factors)
        else:
            self._quantize_each(rows, factors)

    def _steps(self, e: ir.Value, factor: ir.Value) -> ir.Value:
        """A probability in steps of its scale; a mask may have made it NaN, which is 0."""
        steps = self.b.mul(e, factor)
        return steps if self.mask is None else self.b.max(steps, self.b.f32(0.0, self.lanes))

    def _quantize_packed(self, rows: Indices, factors: Values) -> None:
        """Four vectors of a row at a time; the product itself sums their codes."""
        b, lanes, kernel = self.b, self.lanes, self.kernel
        zero, width = self.codes.zero(packing.PROBABILITY), PACKED * lanes
        ones, kind = dot.splat(b, self.isa, 1), vec(lanes, "f32")

        def codes(row: Index, factor: ir.Value, key: Index, count: int) -> ir.Value:
            steps = [
                self._steps(b.get(self.scores, [row, b.offset(key, i * lanes)], kind), factor)
                for i in range(count)
            ]
            steps += [b.f32(0.0, lanes)] * (PACKED - count)
            packed = pack_bytes(b, self.isa, steps, [zero] * PACKED, True, (-128, 127))
            kept = b.shuffle(packed, packed, list(range(count * lanes)))
            b.put(kept, self.probabilities, [row, key])
            return packed

        def add(totals: Values, key: Index, count: int) -> list[ir.Value]:
            return [
                dot.dot(b, self.isa, total, codes(row, factor, key, count), ones)
                for row, factor, total in zip(rows, factors, totals, strict=True)
            ]

        whole, tail = divmod(kernel.padded_keys, width)
        totals = [b.i32(0, lanes)] * len(rows)
        end: Index = whole * width
        if kernel.skips:  # whole packs, with zeros after the reach
            for row, i in itertools.product(rows, range(PACKED - 1)):
                place = b.offset(self.span, i * lanes)
                b.put(b.f32(0.0, lanes), self.scores, [row, place])
            packs = b.divided(b.offset(self.span, width - 1), width)
            whole, tail, end = high(packs), 0, b.scaled(packs, width)
        if whole:
            with b.loop(0, end, width, carry=totals) as loop:
                loop.carried = add(loop.carried, loop.index, PACKED)
            totals = loop.carried
        if tail:
            totals = add(totals, whole * width, tail // lanes)
            end = (whole + 1) * width
        self._value_starts(rows, totals, end)

    def _quantize_each(self, rows: Indices, factors: Values) -> None:
        b, lanes = self.b, self.lanes
        zero = self.codes.zero(packing.PROBABILITY)
        shifted = b.add(zero, b.i32(self.codes.offset, lanes))  # the code of 0 as it is read
        most = b.sub(b.f32(127, lanes), b.to_f32(zero))
        base = b.sub(b.i32(MAGIC_BITS, lanes), shifted)
        with b.loop(0, self.span, lanes, carry=[b.i32(0, lanes)] * len(rows)) as loop:
            sums = []
            for row, factor, total in zip(rows, factors, loop.carried, strict=True):
                e = b.get(self.scores, [row, loop.index], vec(lanes, "f32"))
                bounded = b.min(self._steps(e, factor), most)
                bits = b.reinterpret(b.add(bounded, b.f32(MAGIC, lanes)), "i32")
                codes = b.sub(bits, base)
                element = self.isa.dot.element
                stored = codes if element == "i32" else b.truncate(codes, element)
                b.put(stored, self.probabilities, [row, loop.index])
                sums.append(b.add(total, codes))
            loop.carried = sums
        self._value_starts(rows, loop.carried, self.span)

    def _value_starts(self, rows: Indices, totals: Values, count: Index) -> None:
        """Stores what the zero point of v adds, from the sums of `count` codes of probabilities."""
        b, lanes = self.b, self.lanes
        shifted = b.add(self.codes.zero(packing.PROBABILITY), b.i32(self.codes.offset, lanes))
        nothing = b.mul(b.number(count, lanes), shifted)
        for row, total in zip(rows, totals, strict=True):
            real = b.sub(nothing, b.reduce(total, b.add))
            b.put(b.mul(self.codes.zero(packing.VALUE), real), self.value_start, [row, 0])

    def _value_tile(self, first: Index, count: int, start: int, vectors: int) -> None:
        b, lanes, kernel = self.b, self.lanes, self.kernel
        columns = [(start + j) * lanes for j in range(vectors)]
        starts = [b.load(self.v_start, [*self.shared, c], vec(lanes, "i32")) for c in columns]
        rows = [b.get(self.value_start, [i, 0], vec(lanes, "i32")) for i in range(count)]
        acc = [b.add(row, begin) for row in rows for begin in starts]
        groups = b.divided(self.span, self.group) if kernel.skips else kernel.packed[2].shape[2]
        acc = self._products(acc, groups, self.probabilities, self.v, columns)
        finished = []
        for i, own in enumerate(split(acc, count)):
            to, valid = [0, b.offset(first, i)], kernel.dim - columns[0]
            finished.append(Row(own, [], to, [], columns[0], start, valid))
        self.epilogue.store(self.isa, self.tile, finished)


@emit.register
def emit_integer_attention(kernel: IntegerAttention, operands: Operands) -> list[ir.Value]:
    q, k, v, zeros, *rest = operands
    shown = rest[:2] if kernel.skips else []
    packed = zip(packing.pack(kernel, [k, v, zeros, *shown]), kernel.packed, strict=True)

    def body(b: Builder, tensors: Values, tile: Tile, place: HeadPart) -> None:
        first = b.offset(b.scaled(place.batch, kernel.queries), place.row)
        tensors, wanted = wanted_rows(b, kernel.sequences, tensors, first, kernel.block)
        CodesHead(kernel, b, tensors, tile, place).emit(wanted)

    return over_rows(kernel, [q, *packed, zeros, *rest], kernel.results[0], body)
