"""A workgroup's share of `Gemv`: a part of its columns."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tile, Values, vec
from jq.kernels.epilogue.emission import Columns, Epilogue
from jq.kernels.gemv.description import Gemv
from jq.kernels.gemv.panel_weights import Loaded, PanelWeights, Part, joined, number_of
from jq.kernels.machine import LINE, dot
from jq.kernels.schedule import prefetch

Levels = tuple[Values, Sequence[Values], Values]  # scales, minima if any, zero points; by vector


class RowPanels(PanelWeights):
    """The rows of a workgroup, and panels of columns side by side."""

    def __init__(
        self,
        gemv: Gemv,
        b: Builder,
        tensors: Values,
        tile: Tile,
        part: Part,
        stage: ir.Value | None = None,
        address: ir.Value | None = None,
    ) -> None:
        self.codes, self.row_scale, weights, *rest = tensors
        super().__init__(gemv, b, weights, part)
        self.tile, self.stage, self.address = tile, stage, address
        by_column = [rest.pop(0)] if gemv.scale == "column" else []
        begin = b.offset(part.column, b.scaled(part.first, self.isa.lanes))
        columns = Columns(self.isa.lanes, self.wide, begin, gemv.n)
        self.epilogue = Epilogue(b, gemv.epilogue, rest, columns)
        self.column_scale = [s for x in by_column for s in self.epilogue.by_column(x, "f32")]
        correction = gemv.offset if self.unsigned else 0
        self.factor = 1 if gemv.minimum or gemv.zero else correction

    def emit(self) -> None:
        self.b.sweep(self.gemv.row_block, self.gemv.rows, self._rows, writes=[self.tile])

    def _rows(self, first: Index, count: int) -> None:
        b, isa = self.b, self.isa
        self.local = [b.offset(first, i) for i in range(count)]
        rows = [b.offset(self.part.row, row) for row in self.local]
        if self.stage is not None:
            self._widen(rows, self.stage)
        total = [b.f32(0.0, isa.lanes)] * (len(rows) * self.wide)
        with b.loop(0, self.part.there, carry=total) as once:
            once.carried = self._products_of(rows, once.carried)
        total = once.carried
        for i, local in enumerate(self.local):
            self._finish(local, total[i * self.wide : (i + 1) * self.wide])

    def _products_of(self, rows: Indices, total: Values) -> list[ir.Value]:
        b, (whole, rest) = self.b, divmod(self.gemv.k, self.gemv.block * self.layout.blocks)
        if whole:
            with b.loop(0, whole, carry=total) as loop:
                loop.carried = self._chunk(loop.carried, rows, loop.index, self.layout.blocks, 0)
            total = loop.carried
        if rest:
            blocks, tail = divmod(rest, self.gemv.block)
            total = self._chunk(total, rows, whole, blocks, tail)
        return list(total)

    def _finish(self, local: Index, totals: Values) -> None:
        b, gemv = self.b, self.gemv
        row = b.offset(self.part.row, local)
        ready = self.epilogue.row([row])
        for j, value in enumerate(totals):
            if self.column_scale:
                value = b.mul(value, self.column_scale[j])
            if not gemv.per_block:
                value = b.mul(value, self.epilogue.scalar(self.row_scale, [row], "f32"))
            value = self.epilogue.apply(self.isa, value, [row], j, ready)
            column = b.scaled(b.offset(self.part.first, j), self.isa.lanes)
            b.store(value, self.tile, [local, column], gemv.n)

    def _widen(self, rows: Indices, stage: ir.Value) -> None:
        """The codes of some rows as the product takes them; zeros fill the last block."""
        b, k = self.b, self.gemv.k
        size = self.isa.lanes * self.isa.dot.group

        def put(at: Index, valid: int) -> None:
            for i, row in enumerate(rows):
                codes = b.load(self.codes, [row, at], vec(size, "i8"), valid)
                b.put(dot.operand(b, self.isa, codes), stage, [i, at])

        b.sweep(k, size, put)

    def _chunk(
        self, total: Values, rows: Indices, chunk: Index, blocks: int, tail: int
    ) -> list[ir.Value]:
        """The sums after `blocks` blocks of a chunk and `tail` codes of another."""
        b, gemv = self.b, self.gemv
        if not gemv.outer:
            return self._block(total, rows, chunk, 0, tail or gemv.block)
        factors = self._factors(chunk)
        if blocks:
            with b.loop(0, blocks, carry=total) as loop:
                block, size = loop.index, gemv.block
                loop.carried = self._block(loop.carried, rows, chunk, block, size, factors)
            total = loop.carried
        return self._block(total, rows, chunk, blocks, tail, factors) if tail else list(total)

    def _block(
        self,
        sums: Values,
        rows: Indices,
        chunk: Index,
        block: Index,
        size: int,
        factors: Sequence[Values] = (),
    ) -> list[ir.Value]:
        """The sums after one block of `size` codes along K."""
        b, gemv, isa, group = self.b, self.gemv, self.isa, self.isa.dot.group
        number = b.offset(b.scaled(chunk, self.layout.blocks), block)
        digits = range(gemv.digits)
        acc = dot.Sums(b, isa, len(rows) * gemv.digits * self.wide)
        sums_of_codes = dot.Sums(b, isa, len(rows) * gemv.digits)
        self._fetch(chunk, block)
        loaded: Loaded = {}
        for i in range(math.ceil(size / group)):
            weights = [self._codes(loaded, chunk, block, i, j) for j in range(self.wide)]
            at = b.offset(b.scaled(number, gemv.block), i * group)
            for r, (row, digit) in enumerate((row, d) for row in rows for d in digits):
                valid = min(group, size - i * group)
                place = [row, at] if gemv.digits == 1 else [row, digit, at]
                if self.stage is not None:
                    x = dot.staged(b, isa, self.stage, [r, at])
                else:
                    x = dot.codes(b, isa, self.codes, place, False, valid)
                if self.factor:
                    sums_of_codes.add(r, dot.splat(b, isa, self.factor), x)
                for j, weight in enumerate(weights):
                    acc.add(r * self.wide + j, weight, x)
            acc.end_step()
            sums_of_codes.end_step()
        extra = sums_of_codes.result()
        levels = self._levels(chunk, block, factors)
        return self._scaled(sums, acc.result(), extra, rows, levels, number)

    def _fetch(self, chunk: Index, block: Index) -> None:
        """The lines of every panel that lie as far after this block's as memory is late."""
        b, layout = self.b, self.layout
        if self.address is None:
            return
        chunks = math.ceil(self.gemv.blocks / layout.blocks)
        for j in range(0, self.wide, self.gemv.vectors):
            panel = b.offset(b.scaled(self._vector(j)[0], self.gemv.workgroups), self.part.group)
            at = b.scaled(b.offset(b.scaled(panel, chunks), chunk), layout.bytes)
            at = b.offset(b.offset(at, self._record(block)), self.gemv.ahead)
            for line in range(0, layout.record, LINE):
                prefetch.fetch(b, self.address, b.offset(at, line), prefetch.FIRST)

    def _fetch_run(self, at: Index, run: int, tile: Index, tiles: int) -> None:
        """A tile's share of the weights after run `at` of `run` blocks: those of the next."""
        b, gemv, chunks = self.b, self.gemv, math.ceil(self.gemv.blocks / self.layout.blocks)
        size = self.layout.bytes * (1 if gemv.outer else run)
        panel = b.offset(b.scaled(self._vector(0)[0], gemv.workgroups), self.part.group)
        begin = b.offset(b.scaled(panel, chunks * self.layout.bytes), b.scaled(at, size))
        lines = math.ceil(size / LINE / tiles)
        first = b.offset(b.offset(begin, size), b.scaled(tile, lines * LINE))
        for line in range(lines):
            prefetch.fetch(b, self.address, b.offset(first, line * LINE))

    def _levels(self, chunk: Index, block: Index, factors: Sequence[Values] = ()) -> Levels:
        """The numbers of a block; integers times the factors of their chunk, which is exact."""
        found = [self._level(chunk, block, at) for at in self.layout.scales]
        if factors:
            found = [
                [self.b.mul(number, factor) for number, factor in zip(level, by, strict=True)]
                for level, by in zip(found, factors, strict=True)
            ]
        scales, *minima = found or [[self.b.f32(1.0, self.isa.lanes)] * self.wide]
        return scales, minima, self._zeros(chunk, block) if self.gemv.zero else []

    def _scaled(
        self, sums: Values, acc: Values, extra: Values, rows: Indices, levels: Levels, number: Index
    ) -> list[ir.Value]:
        """A block's integers, scaled and added."""
        b, out, digits, (scales, minima, zeros) = self.b, list(sums), self.gemv.digits, levels
        for i, row in enumerate(rows):
            x_scale = (
                self.epilogue.scalar(self.row_scale, [row, number], "f32")
                if self.gemv.per_block
                else None
            )
            of_codes = extra[i * digits : (i + 1) * digits]
            apart = minima or zeros  # the sum of the codes counts in another way
            taken = joined(b, of_codes) if self.factor and not apart else None
            codes_of_row = self._of_row(of_codes, None) if zeros else None
            for j, scale in enumerate(scales):
                to = i * self.wide + j
                value = joined(b, [acc[(i * digits + d) * self.wide + j] for d in range(digits)])
                if taken:
                    value = [b.sub(v, t) for v, t in zip(value, taken, strict=True)]
                total = number_of(b, value, self.isa.lanes)
                if codes_of_row is not None:
                    total = b.sub(total, b.rounded(b.mul(zeros[j], codes_of_row)))
                given = scale if self.layout.scales else None, x_scale
                factors = [factor for factor in given if factor is not None]
                if factors:
                    out[to] = b.fma(total, reduce(b.mul, factors), out[to])
                else:
                    out[to] = b.add(total, out[to])
            if minima:
                codes_sum = self._of_row(of_codes, x_scale)
                for j, least in enumerate(minima[0]):
                    to = i * self.wide + j
                    out[to] = b.fma(codes_sum, least, out[to])
        return out

    def _of_row(self, digits: Values, scale: ir.Value | None) -> ir.Value:
        """The sum of a row's codes in a block, times its scale."""
        number = number_of(self.b, joined(self.b, digits), self.isa.lanes)
        return number if scale is None else self.b.mul(number, scale)


class StackedPanel(RowPanels):
    """One panel, the totals of whose rows lie on the stack, and the sums of whose rows' codes are
    known: `scratch` is for the codes of a run, its numbers or integers, and the totals."""

    def __init__(self, *given: Any, sums: ir.Value | None, scratch: Values) -> None:
        super().__init__(*given)
        self.sums, (self.panel, self.numbers, self.totals) = sums, scratch
        self.factor = 0

    def _totals(self, row: Index) -> list[ir.Value]:
        lanes, kind = self.isa.lanes, vec(self.isa.lanes, "f32")
        return [self.b.get(self.totals, [row, j * lanes], kind) for j in range(self.wide)]

    def _put_totals(self, row: Index, values: Values) -> None:
        for j, value in enumerate(values):
            self.b.put(value, self.totals, [row, j * self.isa.lanes])

    def _clear(self, rows: int) -> None:
        with self.b.loop(0, rows) as row:
            self._put_totals(row.index, [self.b.f32(0.0, self.isa.lanes)] * self.wide)

    def _of_row(self, digits: Values, scale: ir.Value | None) -> ir.Value:
        return digits[0]
