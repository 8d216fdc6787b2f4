"""The body of `Depthwise`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iree.compiler import ir

from jq.kernels import dot
from jq.kernels.builder import Builder, Tile
from jq.kernels.finish import Epilogue, Row
from jq.kernels.values import Index, vec

if TYPE_CHECKING:
    from jq.kernels.depthwise import Depthwise


class ChannelRows:
    """The body of one workgroup: a block of output rows of one sample."""

    def __init__(
        self,
        kernel: Depthwise,
        b: Builder,
        tensors: Sequence[ir.Value],
        tile: Tile,
        row: Index,
        sample: Index,
    ) -> None:
        self.kernel, self.b, self.isa, self.tile = kernel, b, kernel.target, tile
        self.row, self.sample = row, sample
        self.codes, self.weights, self.init, *self.steps = tensors

    def emit(self) -> None:
        b, kernel = self.b, self.kernel
        with b.loop(0, kernel.block, kernel.together, writes=[self.tile]) as rows:
            local = b.at_most(rows.index, kernel.block - kernel.together)
            with b.loop(0, kernel.vectors, writes=[self.tile]) as vectors:
                self._channels(local, vectors.index)

    def _channels(self, local: Index, vector: Index) -> None:
        """All pixels of `together` output rows for one vector of channels."""
        b, kernel, lanes = self.b, self.kernel, self.isa.lanes
        channel = b.at_most(b.scaled(vector, lanes), max(0, kernel.channels - lanes))
        epilogue = Epilogue(
            b,
            kernel.epilogue,
            self.steps,
            lanes=lanes,
            vectors=1,
            column=channel,
            n=kernel.channels,
        )
        (init,) = epilogue.by_column(self.init, "i32")
        count = kernel.together * kernel.tap_groups * kernel.window[1]
        taps = [dot.weights(b, self.isa, self.weights, [vector, i, 0]) for i in range(count)]
        wide, tile = kernel.output[1], kernel.tile
        with b.loop(0, wide, tile, writes=[self.tile]) as loop:
            column = b.at_most(loop.index, wide - tile)
            acc = self._pixels(local, column, channel, init, taps)
            high = b.offset(b.scaled(self.sample, kernel.output[0]), self.row)
            finished = []
            for r in range(kernel.together):
                for i in range(tile):
                    to = b.offset(b.scaled(b.offset(local, r), wide), b.offset(column, i))
                    pixel = b.offset(b.scaled(high, wide), to)
                    one = [acc[r * tile + i]]
                    finished.append(Row(one, [pixel], [to], [self.sample], channel))
            epilogue.store(self.isa, self.tile, finished)

    def _pixels(
        self,
        local: Index,
        column: Index,
        channel: Index,
        init: ir.Value,
        taps: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """Accumulators of `together` rows by a tile of pixels from `column`."""
        b, kernel, isa = self.b, self.kernel, self.isa
        acc = [init] * (kernel.together * kernel.tile)
        stride, dilation, wide = kernel.strides[1], kernel.dilations[1], kernel.window[1]
        top = b.scaled(b.offset(self.row, local), kernel.strides[0])
        left = b.scaled(column, stride)
        meetings: dict[int, list[tuple[int, int]]] = {}
        for i in range(kernel.tile):
            for w in range(wide):
                meetings.setdefault(i * stride + w * dilation, []).append((i, w))
        for x, meets in sorted(meetings.items()):
            for group in range(kernel.tap_groups):
                codes = self._interleaved(top, b.offset(left, x), channel, group)
                for i, w in meets:
                    for r in range(kernel.together):
                        at = r * kernel.tile + i
                        tap = taps[(r * kernel.tap_groups + group) * wide + w]
                        acc[at] = dot.dot(b, isa, acc[at], codes, tap)
        return acc

    def _interleaved(self, top: Index, column: Index, channel: Index, group: int) -> ir.Value:
        """Lane c: the codes of channel c in the input rows of one group of taps.

        Taps past the window have weight 0, whatever row stands in for them.
        """
        b, kernel, isa = self.b, self.kernel, self.isa
        last = kernel.window[0] + kernel.together - 2
        rows = []
        for j in range(isa.dot.group):
            tap = min(group * isa.dot.group + j, last)
            where = [self.sample, b.offset(top, tap * kernel.dilations[0]), column, channel]
            row = b.load(self.codes, where, vec(isa.lanes, "i8"), kernel.channels)
            rows.append(row)
        flip = kernel.unsigned != isa.dot.lhs_unsigned
        return dot.operand(b, isa, dot.interleave(b, rows), flip)
