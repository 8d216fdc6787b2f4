"""The body of `Convolution` in vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iree.compiler import ir

from jq.kernels import dot
from jq.kernels.builder import Builder, Tile
from jq.kernels.finish import Epilogue, Row
from jq.kernels.gemm_body import Start, split_corrections
from jq.kernels.values import Index

if TYPE_CHECKING:
    from jq.kernels.convolution import Convolution


class PixelPanel:
    """The body of one workgroup: a block of pixels, one panel of the filters of one group."""

    def __init__(
        self,
        conv: Convolution,
        b: Builder,
        tensors: Sequence[ir.Value],
        tile: Tile,
        start: Sequence[Index],
        ids: Sequence[Index],
    ) -> None:
        self.conv, self.b, self.isa, self.tile = conv, b, conv.target, tile
        (self.pixel, column), self.group = start, ids[2]
        self.panel = b.offset(b.scaled(ids[2], conv.tiling.panels), ids[1])
        self.codes, self.weights, init, *rest = tensors
        corrections, steps = split_corrections(conv, rest)
        self.vectors = range(conv.tiling.vectors)
        self.epilogue = Epilogue(
            b,
            conv.epilogue,
            steps,
            lanes=self.isa.lanes,
            vectors=len(self.vectors),
            column=column,
            n=conv.n,
        )
        self.start = Start(conv, self.epilogue, init, corrections)

    def emit(self) -> None:
        cut = self.conv.tiling
        full, rest = divmod(cut.block, cut.rows)
        if full:
            with self.b.loop(0, full * cut.rows, cut.rows, writes=[self.tile]) as loop:
                self._pixels(loop.index, cut.rows)
        if rest:
            self._pixels(full * cut.rows, rest)

    def _pixels(self, first: Index, count: int) -> None:
        """One register tile: `count` pixels from `first` (within the block)."""
        b, conv = self.b, self.conv
        pixels = [b.offset(self.pixel, b.offset(first, i)) for i in range(count)]
        corners = [conv.corner(b, p) for p in pixels]
        high, wide = conv.runs
        samples = [conv.sample(b, p) for p in pixels]
        acc = [value for sample in samples for value in self.start.of(sample, None)]
        with b.loop(0, high, carry=acc) as rows:
            with b.loop(0, wide, carry=rows.carried) as columns:
                columns.carried = self._run(columns.carried, corners, rows.index, columns.index)
            rows.carried = columns.carried
        wide = len(self.vectors)
        finished = [
            Row(
                rows.carried[i * wide : (i + 1) * wide],
                at=[pixel],
                to=[b.offset(first, i)],
                by_row=[samples[i]],
            )
            for i, pixel in enumerate(pixels)
        ]
        self.epilogue.store(self.isa, self.tile, finished)

    def _run(
        self, acc: Sequence[ir.Value], corners: Sequence[Sequence[Index]], h: Index, w: Index
    ) -> list[ir.Value]:
        b, conv = self.b, self.conv
        channel = b.scaled(self.group, conv.channels // conv.groups)
        starts = []
        for corner in corners:
            sample, row, column = conv.tap(b, corner, h, w)
            starts.append([sample, row, b.offset(column, channel)])
        run = b.offset(b.scaled(h, conv.runs[1]), w)
        base = b.scaled(run, conv.run_groups)
        whole, tail = (conv.run_groups, 0) if conv.room else divmod(conv.run, self.isa.dot.group)
        out = list(acc)
        if whole:
            with b.loop(0, whole, carry=out) as loop:
                loop.carried = self._step(loop.carried, starts, base, loop.index, None)
            out = loop.carried
        return self._step(out, starts, base, whole, tail) if tail else out

    def _step(
        self,
        acc: Sequence[ir.Value],
        starts: Sequence[Sequence[Index]],
        base: Index,
        k: Index,
        valid: int | None,
    ) -> list[ir.Value]:
        """All products of one group of codes."""
        b, isa = self.b, self.isa
        size = isa.lanes * isa.dot.group
        at = [self.panel, b.offset(base, k)]
        stored = self.conv.panel * isa.dot.group
        weights = [dot.weights(b, isa, self.weights, [*at, j * size], stored) for j in self.vectors]
        flip = self.conv.unsigned != isa.dot.lhs_unsigned
        step = b.scaled(k, isa.dot.group)
        out = list(acc)
        for i, (sample, row, column) in enumerate(starts):
            where = [sample, row, b.offset(column, step)]
            codes = dot.codes(b, isa, self.codes, where, flip, valid)
            for j, weight in enumerate(weights):
                to = i * len(weights) + j
                out[to] = dot.dot(b, isa, out[to], codes, weight)
        return out
