"""The body of `Normalize`."""

from collections.abc import Callable, Sequence

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tiles, Values, vec
from jq.kernels.machine.isa import CHAINS
from jq.kernels.rowwise.body import row_body
from jq.kernels.rowwise.description import Normalize
from jq.kernels.rowwise.quantizer import RowParameters, RowQuantizer
from jq.kernels.schedule.rows import Rows, States, over_row, split


class _NormalizedRows:
    """The body of some rows together; what has one value a row is a list."""

    def __init__(self, kernel: Normalize, b: Builder, tensors: Values, rows: Indices) -> None:
        self.kernel, self.b, self.rows = kernel, b, rows
        self.lanes = kernel.target.lanes
        self.source, *rest = tensors
        self.gamma = rest.pop(0) if kernel.gamma else None
        self.beta = rest.pop(0) if kernel.beta else None
        self.factors = rest.pop(0) if kernel.factors else None
        self.given = rest

    def emit(self, tiles: Tiles, local: Indices) -> None:
        b, kernel, lanes = self.b, self.kernel, self.lanes
        count, one = b.f32(kernel.k, CHAINS), b.f32(1.0, lanes)
        self.wide_means = [b.f32(0.0, CHAINS)] * len(self.rows)
        if kernel.center:
            self.wide_means = [b.div(total, count) for total in self._sums(self._plus)]
        self.means = [self._narrow(mean) for mean in self.wide_means]
        variances = [self._narrow(b.div(v, count)) for v in self._sums(self._plus_square)]
        epsilon = b.f32(kernel.epsilon, lanes)
        self.inverses = [b.div(one, b.sqrt(b.add(v, epsilon))) for v in variances]
        self._write(tiles, local, self._ranges())

    def _sums(self, plus: Callable[[int, ir.Value, Index, int | None], ir.Value]) -> list[ir.Value]:
        """Sums by row, in every one of `CHAINS` lanes; narrower vectors become several."""
        b = self.b

        def add(columns: list[Index], valid: int | None, states: States) -> States:
            return [
                [plus(i, total, column, valid) for i, total in enumerate(state)]
                for column, state in zip(columns, states, strict=True)
            ]

        start = [b.f32(0.0, CHAINS)] * len(self.rows)
        states = over_row(b, self.kernel.k, CHAINS, add, start)
        totals = states[0]
        for state in states[1:]:
            totals = [b.add(total, other) for total, other in zip(totals, state, strict=True)]
        return [b.reduce(total, b.add) for total in totals]

    def _narrow(self, value: ir.Value) -> ir.Value:
        """Spreads a value that is the same in all of `CHAINS` lanes over a vector."""
        return self.b.shuffle(value, value, [0] * self.lanes)

    def _load(self, i: int, column: Index, valid: int | None, lanes: int = 0) -> ir.Value:
        kind = vec(lanes or self.lanes, "f32")
        return self.b.load(self.source, [self.rows[i], column], kind, valid)

    def _plus(self, i: int, total: ir.Value, column: Index, valid: int | None) -> ir.Value:
        return self.b.add(total, self._load(i, column, valid, CHAINS))

    def _plus_square(self, i: int, total: ir.Value, column: Index, valid: int | None) -> ir.Value:
        x = self._load(i, column, valid, CHAINS)
        centered = self.b.keep(self.b.sub(x, self.wide_means[i]), valid)
        return self.b.fma(centered, centered, total)

    def _normalized(self, i: int, column: Index, valid: int | None) -> ir.Value:
        """One vector of y; the last product and sum are one operation, wherever it is emitted."""
        b = self.b
        x = b.sub(self._load(i, column, valid), self.means[i])
        factor = self.inverses[i]
        if self.gamma is not None:
            x, factor = b.mul(x, factor), self._by_column(self.gamma, column, valid)
        if self.beta is None:
            return b.mul(x, factor)
        return b.fma(x, factor, self._by_column(self.beta, column, valid))

    def _quantized(self, y: ir.Value, column: Index, valid: int | None) -> ir.Value:
        """The numbers that become codes."""
        if self.factors is None:
            return y
        return self.b.rounded(self.b.mul(y, self._by_column(self.factors, column, valid)))

    def _by_column(self, source: ir.Value, column: Index, valid: int | None) -> ir.Value:
        return self.b.load(source, [column], vec(self.lanes, "f32"), valid)

    def _ranges(self) -> list[RowParameters]:
        """The range of every row; none where there are no codes."""
        scheme = self.kernel.scheme
        if scheme is None:
            return []
        b = self.b
        self.quantizer = quantizer = RowQuantizer(b, scheme, self.lanes)
        if self.given:
            return [quantizer.given(self.given)] * len(self.rows)
        start = quantizer.start()

        def include(columns: list[Index], valid: int | None, states: States) -> States:
            return [
                [
                    value
                    for i, own in enumerate(split(state, len(self.rows)))
                    for value in quantizer.include(
                        own, b.keep(self._coded(i, column, valid), valid)
                    )
                ]
                for column, state in zip(columns, states, strict=True)
            ]

        states = over_row(b, self.kernel.k, self.lanes, include, start * len(self.rows))
        by_row = zip(*(split(state, len(self.rows)) for state in states), strict=True)
        return [quantizer.parameters(quantizer.join(own)) for own in by_row]

    def _coded(self, i: int, column: Index, valid: int | None) -> ir.Value:
        return self._quantized(self._normalized(i, column, valid), column, valid)

    def _write(self, tiles: Tiles, local: Indices, parameters: Sequence[RowParameters]) -> None:
        b, kept = self.b, 1 if self.kernel.keep else 0
        written = tiles[: kept + bool(parameters)]

        def write(columns: list[Index], valid: int | None, states: States) -> States:
            for i, to in enumerate(local):
                values = []
                for column in columns:
                    y = self._normalized(i, column, valid)
                    if self.kernel.keep:
                        b.store(y, tiles[0], [to, column], valid)
                    if parameters:
                        values.append(self._quantized(y, column, valid))
                if parameters:
                    isa, place = self.kernel.target, (tiles[kept], to)
                    self.quantizer.write(isa, parameters[i], values, place, columns, valid)
            return states

        over_row(b, self.kernel.k, self.lanes, write, writes=written)
        for own, to in zip(parameters, local, strict=False):
            self.quantizer.store(own, tiles[kept + 1 :], [to])


@row_body.register
def row_body_normalize(
    kernel: Normalize, b: Builder, tensors: Values, tiles: Tiles, rows: Rows
) -> None:
    _NormalizedRows(kernel, b, tensors, rows.at).emit(tiles, rows.to)
