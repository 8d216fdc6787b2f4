"""The body of `Depthwise`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from iree.compiler import ir

from jq.base.errors import InternalError
from jq.kernels.depthwise.description import Depthwise
from jq.kernels.emit import Builder, Index, Indices, Tile, Tiles, Values, interleave, vec
from jq.kernels.emit.dispatches import Operands, Output, dispatch, emit
from jq.kernels.epilogue.emission import Columns, Epilogue, Row
from jq.kernels.gemm.body import rounded
from jq.kernels.gemm.source import Start, first_sums, split_starts
from jq.kernels.machine import dot

ALL = (1 << 32) - 1  # bits of a float


@dataclass(frozen=True)
class InputRows:
    """The input rows of a group of taps: where they are, and, with padding, as `mask` the taps that
    meet a row in the image (floats: the words of the only row)."""

    at: Indices
    mask: ir.Value | None = None


class ChannelRows:
    """The body of one workgroup: a block of output rows of one sample."""

    def __init__(
        self, kernel: Depthwise, b: Builder, tensors: Values, tile: Tile, row: Index, sample: Index
    ) -> None:
        self.kernel, self.b, self.isa, self.tile = kernel, b, kernel.target, tile
        self.row, self.sample = row, sample
        count = kernel.code_operands
        self.bytes, (self.weights, *rest) = tensors[:count], tensors[count:]
        self.starts, steps = split_starts(kernel, rest)
        self.steps, self.padding = list(steps), list[ir.Value]()  # by image
        if kernel.floats:
            self.padding = [b.f32(0.0, self.isa.lanes)]
        elif kernel.padded:
            one = b.load(self.steps.pop(0), [sample], vec(1, "i8"))
            code = b.broadcast(one, self.isa.lanes * self.isa.dot.group)
            codes = [code, b.constant(code.type, 0)][:count]  # 2^15 has no lower bits
            self.padding = [dot.operand(b, self.isa, v, self._flip) for v in codes]

    @property
    def _flip(self) -> bool:
        return self.kernel.unsigned != self.isa.dot.lhs_unsigned

    def emit(self) -> None:
        b, kernel = self.b, self.kernel
        with b.loop(0, kernel.block, kernel.together, writes=[self.tile]) as rows:
            local = b.at_most(rows.index, kernel.block - kernel.together)
            top = b.scaled(b.offset(self.row, local), kernel.strides[0])
            inputs = [self._rows(top, group) for group in range(kernel.tap_groups)]
            with b.loop(0, kernel.vectors, writes=[self.tile]) as vectors:
                self._channels(local, inputs, vectors.index)

    def _rows(self, top: Index, group: int) -> InputRows:
        """Taps past the window have weight 0, whatever row stands in for them."""
        b, kernel, size = self.b, self.kernel, self.isa.dot.group
        taps = [min(group * size + j, kernel.reach - 1) * kernel.dilations[0] for j in range(size)]
        if not kernel.padded:
            return InputRows([b.offset(top, tap) for tap in taps])
        above, at, words = kernel.padding[0][0], [], []
        for j, tap in enumerate(taps):
            row, inside = b.within(b.offset(top, tap), above, kernel.height)
            at.append(row)
            if kernel.floats:
                return InputRows(at, b.broadcast(b.chosen(inside, "i32", ALL, 0), self.isa.lanes))
            words.append(b.chosen(inside, f"i{8 * size}", 0xFF << 8 * j, 0))
        word = b.broadcast(reduce(b.bit_or, words), self.isa.lanes)
        mask = b.bitcast(word, vec(size * self.isa.lanes, "i8"))
        return InputRows(at, dot.operand(b, self.isa, mask))

    def _channels(self, local: Index, inputs: Sequence[InputRows], vector: Index) -> None:
        """All pixels of `together` output rows for one vector of channels."""
        b, kernel, lanes = self.b, self.kernel, self.isa.lanes
        channel = b.part(vector, lanes, kernel.channels)
        columns = Columns(lanes, 1, channel, kernel.channels)
        epilogue = Epilogue(b, kernel.epilogue, self.steps, columns)
        sums = first_sums(epilogue, self.starts)
        (init,) = Start(kernel, epilogue, sums, self.starts[1:]).of(self.sample, None)
        every = range(kernel.parts * kernel.taps)
        packed = [dot.weights(b, self.isa, self.weights, [vector, i, 0]) for i in every]
        taps, starts = self._inside(inputs, init, packed)

        def pixels(first: Index) -> None:
            acc = self._products(inputs, first, channel, starts, taps)
            self._store(local, acc, first, channel, epilogue)

        wide, tile = kernel.output[1], kernel.tile
        first, last = kernel.edges
        count = math.ceil(wide / tile)
        for i in range(first):
            pixels(min(i * tile, wide - tile))
        if first + last < count:
            if first * tile * kernel.strides[1] < kernel.padding[1][0]:
                raise InternalError(f"{kernel.label} would read in front of a row")
            end = min(wide, (count - last) * tile)
            with b.loop(first * tile, end, tile, writes=[self.tile]) as loop:
                pixels(b.at_most(loop.index, wide - tile))
        for i in range(count - last, count):
            pixels(min(i * tile, wide - tile))

    def _inside(
        self, inputs: Sequence[InputRows], init: ir.Value, taps: Values
    ) -> tuple[Values, Sequence[Values]]:
        """Taps that meet rows of the image; and, by image and output row, what sums start from: the
        others' products with the padding's code, once for all pixels."""
        b, kernel, isa, inside = self.b, self.kernel, self.isa, list[ir.Value]()
        starts = [[init] * kernel.together for _ in self.bytes]
        starts[1:] = [[b.i32(0, isa.lanes)] * kernel.together for _ in starts[1:]]
        if kernel.floats or not self.padding:
            return taps, starts
        for i, tap in enumerate(taps):
            row, place = divmod(i % kernel.taps // kernel.window[1], kernel.tap_groups)
            mask = inputs[place].mask
            assert mask is not None
            inside.append(b.bit_and(tap, mask))
            other = b.xor(tap, inside[-1])
            for start, code in zip(starts, self.padding, strict=True):
                start[row] = dot.dot(b, isa, start[row], code, other)
        return inside, starts

    def _store(
        self, local: Index, acc: Values, column: Index, channel: Index, epilogue: Epilogue
    ) -> None:
        """One register tile: `together` rows by a tile of pixels from `column`."""
        b, kernel, wide, tile = self.b, self.kernel, self.kernel.output[1], self.kernel.tile
        high = b.offset(b.scaled(self.sample, kernel.output[0]), self.row)
        finished = []
        for r in range(kernel.together):
            for i in range(tile):
                to = b.offset(b.scaled(b.offset(local, r), wide), b.offset(column, i))
                pixel = b.offset(b.scaled(high, wide), to)
                one = [acc[r * tile + i]]
                finished.append(Row(one, [pixel], [to], [self.sample], channel))
        epilogue.store(self.isa, self.tile, finished)

    def _products(
        self,
        rows: Sequence[InputRows],
        column: Index,
        channel: Index,
        starts: Sequence[Values],
        taps: Values,
    ) -> list[ir.Value]:
        """Accumulators of `together` rows by a tile of pixels from `column`."""
        b, kernel, isa = self.b, self.kernel, self.isa
        acc = list[ir.Value]()
        stride, dilation, wide = kernel.strides[1], kernel.dilations[1], kernel.window[1]
        left = b.scaled(column, stride)
        meetings: dict[int, list[tuple[int, int]]] = {}
        for i in range(kernel.tile):
            for w in range(wide):
                x = i * stride + w * dilation - kernel.padding[1][0]
                meetings.setdefault(x, []).append((i, w))
        for number in range(len(self.bytes)):
            start = [v for v in starts[number] for _ in range(kernel.tile)]
            shifted = [b.shift_left(v, 8) for v in acc]  # none before the first image
            acc = [b.add(v, s) for v, s in zip(shifted, start, strict=True)] if number else start
            for x, meets in sorted(meetings.items()):
                for place, group in enumerate(rows):
                    codes = self._interleaved(group, b.offset(left, x), channel, number)
                    for i, w in meets:
                        for r in range(kernel.together):
                            at = r * kernel.tile + i
                            for tap in taps[kernel.tap(r, place, w) :: kernel.taps]:
                                acc[at] = dot.dot(b, isa, acc[at], codes, tap)
        return acc

    def _interleaved(self, rows: InputRows, column: Index, channel: Index, number: int) -> ir.Value:
        """Lane c: an image's codes of channel c in the input rows of one group of taps."""
        b, kernel, isa, image = self.b, self.kernel, self.isa, self.bytes[number]
        if isinstance(column, int) and not 0 <= column < kernel.width:
            return self.padding[number]
        if kernel.floats:
            place = [self.sample, *rows.at, column, channel]
            values = dot.floats(b, image, place, isa.lanes, kernel.channels)
            if rows.mask is None:
                return values
            return b.reinterpret(b.bit_and(b.reinterpret(values, "i32"), rows.mask), "f32")
        kind, places = vec(isa.lanes, "i8"), ([self.sample, r, column, channel] for r in rows.at)
        loaded = [b.load(image, place, kind, kernel.channels) for place in places]
        return dot.operand(b, isa, interleave(b, loaded), self._flip)


@emit.register
def emit_depthwise(kernel: Depthwise, operands: Operands) -> list[ir.Value]:
    (high, wide), operands = kernel.output, [rounded(kernel, operands[0]), *operands[1:]]

    def row(b: Builder, ids: Indices) -> Index:
        return b.part(ids[0], kernel.block, high)

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        return [b.scaled(b.offset(b.scaled(ids[1], high), row(b, ids)), wide), 0]

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        ChannelRows(kernel, b, tensors, tiles[0], row(b, ids), ids[1]).emit()

    output = Output(kernel.results[0], (kernel.block * wide, kernel.channels), offsets)
    return dispatch(operands, [output], [math.ceil(high / kernel.block), kernel.batch], body)
