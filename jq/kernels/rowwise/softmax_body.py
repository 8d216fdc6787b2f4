"""The body of `Softmax`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from iree.compiler import ir

from jq.kernels.build.bodies import Operands, emit
from jq.kernels.build.builder import Builder, Tiles
from jq.kernels.build.values import Index, Indices, Values, vec
from jq.kernels.epilogue.functions import exp2
from jq.kernels.machine.isa import CHAINS
from jq.kernels.machine.workgroups import row_block
from jq.kernels.rowwise.quantizer import RowParameters, RowQuantizer
from jq.kernels.rowwise.softmax import LOG2_E, Softmax
from jq.kernels.schedule.rows import Rows, row_dispatch


class _Rows:
    """The body of a few rows."""

    def __init__(self, kernel: Softmax, b: Builder, tensors: Values, rows: Indices) -> None:
        self.kernel, self.b, self.rows = kernel, b, rows
        self.lanes, self.kind = CHAINS, vec(CHAINS, "f32")  # sums in one order on every processor
        self.source, *rest = tensors
        self.mask = rest.pop(0) if kernel.mask != "none" else None
        self.given = rest
        self.scratch = b.scratch([len(rows), kernel.padded], "f32")
        self.padded = kernel.padded

    def emit(self, tiles: Tiles, local: Indices) -> None:
        b, lanes = self.b, self.lanes
        largest = [b.reduce(v, b.max) for v in self._scores()]
        totals = [b.reduce(v, b.add) for v in self._exps(largest)]
        # A row of -inf has no softmax: inf - inf makes it NaN.
        inverse = [
            b.div(b.f32(1.0, lanes), b.add(t, b.sub(m, m)))
            for t, m in zip(totals, largest, strict=True)
        ]
        self._write(tiles, local, inverse, self._parameters(inverse))

    def _scores(self) -> list[ir.Value]:
        """Masked scores into the scratch (-inf past the end), and their largest lanes."""
        b, lanes, k = self.b, self.lanes, self.kernel.k

        def add(state: Values, column: Index, valid: int) -> list[ir.Value]:
            out = []
            for i, row in enumerate(self.rows):
                s = b.load(self.source, [row, column], self.kind, valid)
                if self.kernel.factor != 1.0:
                    s = b.rounded(b.mul(s, b.f32(self.kernel.factor, lanes)))
                if self.mask is not None:
                    at = [self._mask_row(row), column]
                    s = b.add(s, b.load(self.mask, at, self.kind, valid))
                s = b.keep(s, valid, -math.inf)
                b.put(s, self.scratch, [i, column])
                out.append(b.max(s, state[i]))
            return out

        state = [b.f32(-math.inf, lanes)] * len(self.rows)
        return b.fold(k, lanes, add, state)

    def _mask_row(self, row: Index) -> Index:
        """The mask's row for a row of scores."""
        b, kernel = self.b, self.kernel
        sample = b.divided(row, kernel.heads * kernel.queries)
        if kernel.mask == "keys":
            return sample
        return b.offset(b.scaled(sample, kernel.queries), b.modulo(row, kernel.queries))

    def _exps(self, largest: Values) -> list[ir.Value]:
        """Exponentials in place (0 past the end), and their sums by lane."""
        b, lanes = self.b, self.lanes

        def add(sums: Values, column: Index, valid: int) -> list[ir.Value]:
            out = []
            for i, total in enumerate(sums):
                below = b.sub(b.get(self.scratch, [i, column], self.kind), largest[i])
                e = b.keep(exp2(b, b.mul(below, b.f32(LOG2_E, lanes))), valid)
                b.put(e, self.scratch, [i, column])
                out.append(b.add(total, e))
            return out

        return b.fold(self.kernel.k, lanes, add, [b.f32(0.0, lanes)] * len(self.rows))

    def _parameters(self, inverse: Values) -> list[RowParameters]:
        scheme = self.kernel.scheme
        if scheme is None:
            return []
        b, lanes = self.b, self.lanes
        self.quantizer = quantizer = RowQuantizer(b, scheme, lanes)
        if self.given:
            return [quantizer.given(self.given)] * len(self.rows)
        size = len(quantizer.start())
        with b.loop(0, self.padded, lanes, carry=quantizer.start() * len(self.rows)) as loop:
            out: list[ir.Value] = []
            for i in range(len(self.rows)):
                y = b.mul(b.get(self.scratch, [i, loop.index], self.kind), inverse[i])
                out += quantizer.include(loop.carried[i * size : (i + 1) * size], y)
            loop.carried = out
        return [
            quantizer.parameters(loop.carried[i * size : (i + 1) * size])
            for i in range(len(self.rows))
        ]

    def _write(
        self, tiles: Tiles, local: Indices, inverse: Values, parameters: Sequence[RowParameters]
    ) -> None:
        b, lanes, k = self.b, self.lanes, self.kernel.k
        kept = 1 if self.kernel.keep else 0
        written = tiles[: kept + bool(parameters)]

        def write(column: Index, valid: int) -> None:
            for i, to in enumerate(local):
                y = b.mul(b.get(self.scratch, [i, column], self.kind), inverse[i])
                if kept:
                    b.store(y, tiles[0], [to, column], valid)
                if parameters:
                    codes = self.quantizer.codes(parameters[i], y)
                    b.store(codes, tiles[kept], [to, column], valid)

        b.sweep(k, lanes, write, writes=written)
        for row, to in zip(parameters, local, strict=False):
            self.quantizer.store(row, tiles[kept + 1 :], to)


@emit.register
def _(kernel: Softmax, operands: Operands) -> list[ir.Value]:
    def body(b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
        _Rows(kernel, b, tensors, rows.at).emit(tiles, rows.to)

    block = row_block(kernel.m, kernel.k)
    return row_dispatch(operands, kernel.results, body, block, together=kernel.together)
