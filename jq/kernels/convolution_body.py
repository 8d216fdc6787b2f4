"""The body of `Convolution` in vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from iree.compiler import ir

from jq.kernels import dot, overlap, tiling
from jq.kernels.ahead import Ahead
from jq.kernels.builder import Builder, Tile
from jq.kernels.finish import TOGETHER, Epilogue, Row
from jq.kernels.frame import Part
from jq.kernels.gemm_body import Start, split_corrections
from jq.kernels.overlap import Between
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
        part: Part | None,
    ) -> None:
        self.conv, self.b, self.isa, self.tile = conv, b, conv.target, tile
        (self.pixel, column), self.group, self.part = start, ids[2], part
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
        cut = conv.tiling
        self.ahead = Ahead.of(b, self.weights, self.panel, conv.pixels, cut.block, cut.rows)

    def emit(self) -> None:
        tall, block = self.conv.tiling.rows, self.conv.tiling.block
        whole, rest = tiling.tiles(block, tall)
        if whole > tall and self._overlaps:
            self._overlapped(whole)
        elif whole:
            with self.b.loop(0, whole, tall, writes=[self.tile]) as loop:
                self._pixels(self.b.at_most(loop.index, whole - tall), tall)
        if rest:
            self._pixels(whole, rest)

    def _pixels(self, first: Index, count: int) -> None:
        """One register tile: `count` pixels from `first` (within the block)."""
        acc, wide = self._products(first, count), len(self.vectors)
        parts = [acc[i : i + wide] for i in range(0, count * wide, wide)]
        self._finish(first, parts)

    def _finish(
        self,
        first: Index,
        accumulators: Sequence[Sequence[ir.Value]],
        vector: int = 0,
        chain: int = TOGETHER,
    ) -> None:
        """The epilogue of pixels from `first`, and of a panel's vectors from `vector`."""
        b = self.b
        finished = []
        for i, acc in enumerate(accumulators):
            local = b.offset(first, i)
            pixel = b.offset(self.pixel, local)
            to = self.part.row(b, pixel) if self.part else local
            by_row = [self.conv.sample(b, pixel)]
            finished.append(Row(acc, [pixel], [to], by_row, vector * self.isa.lanes, vector))
        self.epilogue.store(self.isa, self.tile, finished, chain)

    # Epilogues among products

    @property
    def _parts(self) -> int:
        """Parts of a run, behind each of which is a pixel's epilogue."""
        return math.ceil(self.conv.tiling.rows / math.prod(self.conv.runs))

    @property
    def _overlaps(self) -> bool:
        return overlap.pays(self.isa, self.epilogue, self._whole, self._parts)

    def _overlapped(self, block: int) -> None:
        """The register tiles of `block` pixels."""
        tall = self.conv.tiling.rows

        def products(first: Index, between: Between) -> list[ir.Value]:
            return self._products(first, tall, between)

        def finish(pixel: Index, accumulators: Sequence[ir.Value], vector: int) -> None:
            self._finish(pixel, [accumulators], vector, 1)

        cut = overlap.pieces(self.epilogue)
        overlap.emit(self.b, self.isa, self.tile, tall, cut, block, block, products, finish)

    # Products

    @property
    def _whole(self) -> int:
        """Steps of a run that read whole groups."""
        conv = self.conv
        return conv.run_groups if conv.room else conv.run // self.isa.dot.group

    def _products(self, first: Index, count: int, between: Between | None = None) -> list[ir.Value]:
        """The accumulators of a register tile; something else after each of a run's parts."""
        b, conv = self.b, self.conv
        pixels = [b.offset(self.pixel, b.offset(first, i)) for i in range(count)]
        corners = [conv.corner(b, p) for p in pixels]
        tile = self.ahead.tile(first) if self.ahead else 0
        acc = [v for p in pixels for v in self.start.of(conv.sample(b, p), None)]
        high, wide = conv.runs
        writes = [self.tile] if between else []
        with b.loop(0, high, carry=acc, writes=writes) as rows:
            with b.loop(0, wide, carry=rows.carried, writes=writes) as columns:
                tap = (rows.index, columns.index)
                columns.carried = self._run(columns.carried, tile, corners, *tap, between)
            rows.carried = columns.carried
        return rows.carried

    def _run(
        self,
        acc: list[ir.Value],
        tile: Index,
        corners: Sequence[Sequence[Index]],
        h: Index,
        w: Index,
        between: Between | None,
    ) -> list[ir.Value]:
        b, conv = self.b, self.conv
        channel = b.scaled(self.group, conv.channels // conv.groups)
        starts = []
        for corner in corners:
            sample, row, column = conv.tap(b, corner, h, w)
            starts.append([sample, row, b.offset(column, channel)])
        run = b.offset(b.scaled(h, conv.runs[1]), w)
        base = b.scaled(run, conv.run_groups)

        def step(acc: list[ir.Value], k: Index) -> list[ir.Value]:
            if self.ahead:
                self.ahead.fetch(tile, b.offset(base, k))
            return self._step(acc, starts, base, k, None)

        if between:

            def epilogue(part: Index, piece: int | None) -> None:
                between.epilogue(b.offset(b.scaled(run, self._parts), part), piece)

            of_run = replace(between, epilogue=epilogue)
            acc = overlap.parts(b, self.tile, acc, self._whole, self._parts, [None], step, of_run)
        else:
            acc = overlap.along(b, acc, 0, self._whole, step)
        tail = 0 if conv.room else conv.run % self.isa.dot.group
        return self._step(acc, starts, base, self._whole, tail) if tail else acc

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
