"""Emits the range, the parameters and the codes of rows, as `RowQuantization` defines them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tile, Tiles, Values, vec
from jq.kernels.epilogue.functions import MAGIC_BITS, Divisor, divisor, rounded_bits, to_codes
from jq.kernels.machine.dot import PACKED, pack_bytes
from jq.kernels.machine.isa import Isa
from jq.kernels.rowwise.description import ASYMMETRIC, SMALLEST_NORMAL, RowQuantization


@dataclass(frozen=True)
class Quotient:
    """Division by any number, bounded as `Divisor` is."""

    scale: ir.Value
    low: ir.Value
    high: ir.Value

    def steps(self, b: Builder, y: ir.Value) -> ir.Value:
        """`y / scale`, rounded once, or the bound; 0 for NaN."""
        return b.min(b.max(b.zero_if_nan(b.div(y, self.scale)), self.low), self.high)


@dataclass(frozen=True)
class RowParameters:
    """A row's parameters, in every lane; `factor` divides (static) or is the inverse scale."""

    factor: ir.Value | Divisor | Quotient
    low: ir.Value
    high: ir.Value
    offset: ir.Value | None
    scale: ir.Value | None = None
    zero: ir.Value | None = None


class RowQuantizer:
    """Emits the range, the parameters and the codes of rows in vectors of `lanes`."""

    def __init__(self, b: Builder, scheme: RowQuantization, lanes: int) -> None:
        self.b, self.scheme, self.lanes = b, scheme, lanes
        self.asymmetric = scheme.scheme == ASYMMETRIC
        self.shift = 128 if scheme.unsigned else 0
        self.combine = [b.max, *([b.min] if self.asymmetric else []), b.add]

    # Range: a state of largest, (smallest,) and a NaN where there was one

    def start(self) -> list[ir.Value]:
        return [self.b.f32(0.0, self.lanes)] * (3 if self.asymmetric else 2)

    def include(self, state: Values, x: ir.Value) -> list[ir.Value]:
        """The state after the vector `x`."""
        b, (largest, *smallest, nan) = self.b, state
        largest = b.max(x if self.asymmetric else b.abs(x), largest)
        smallest = [b.min(x, s) for s in smallest]
        return [largest, *smallest, b.select_equal(x, x, nan, x)]

    def join(self, states: Sequence[Values]) -> list[ir.Value]:
        """One state of several."""
        joined = list(states[0])
        for state in states[1:]:
            joined = [how(x, y) for how, x, y in zip(self.combine, joined, state, strict=True)]
        return joined

    def parameters(self, state: Values) -> RowParameters:
        """The parameters of a row, from its whole range."""
        b, lanes = self.b, self.lanes
        ends = zip(state, self.combine, strict=True)
        largest, *smallest, nan = (b.reduce(v, how) for v, how in ends)
        extent = b.add(b.sub(largest, smallest[0]) if smallest else largest, nan)
        tiny, one = b.f32(self.scheme.steps * SMALLEST_NORMAL, lanes), b.f32(1.0, lanes)
        bounded = b.max(tiny, extent)  # NaN stays NaN
        divisor = b.select_equal(bounded, tiny, one, b.f32(self.scheme.steps, lanes))
        extent = b.select_equal(bounded, tiny, one, extent)
        scale, inverse = b.div(extent, divisor), b.div(divisor, extent)
        if not smallest:
            bounds = self.scheme.low, self.scheme.wide or 127
            low, high = (b.f32(bound, lanes) for bound in bounds)
            offset = b.i32(self.shift, lanes) if self.shift else None
            return RowParameters(inverse, low, high, offset, scale)
        zero = self._zero_point(smallest[0], scale)
        return RowParameters(inverse, *self._around(zero), scale, zero)

    def of_block(self, xs: Values) -> RowParameters:
        """The parameters of a few vectors."""
        state = self.start()
        for x in xs:
            state = self.include(state, x)
        return self.parameters(state)

    def given(self, operands: Values) -> RowParameters:
        """The parameters of every row in the static scheme, from its operands
        (`RowQuantization.operands`)."""
        b = self.b
        scale, zero = (
            b.broadcast(b.load(x, [0], vec(1, kind.element)), self.lanes)
            for x, kind in zip(operands, self.scheme.operands, strict=True)
        )
        low, high, offset = self._around(zero)
        exact = Quotient(scale, low, high) if self.scheme.measured else divisor(b, scale, low, high)
        return RowParameters(exact, low, high, offset)

    def _around(self, zero: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The bounds before the zero point is added, and what is added."""
        b, lanes, as_float = self.b, self.lanes, self.b.to_f32(zero)
        low, high = (b.sub(b.f32(bound, lanes), as_float) for bound in (self.scheme.low, 127))
        return low, high, b.add(zero, b.i32(self.shift, lanes)) if self.shift else zero

    def _zero_point(self, smallest: ir.Value, scale: ir.Value) -> ir.Value:
        """`round(saturate(qmin - smallest / scale))`, signed i32."""
        b, lanes = self.b, self.lanes
        base = 0 if self.scheme.unsigned_zero else -128
        x = b.zero_if_nan(b.sub(b.f32(base, lanes), b.div(smallest, scale)))
        bits = rounded_bits(b, x, b.f32(base, lanes), b.f32(base + 255, lanes))
        return b.sub(bits, b.i32(MAGIC_BITS + base + 128, lanes))

    def packed(self, isa: Isa, row: RowParameters, xs: Values) -> ir.Value:
        """i8 codes of `PACKED` vectors one after the other (`isa.packs`)."""
        b, lanes = self.b, self.lanes
        steps = []
        for x in xs:
            if isinstance(row.factor, Divisor | Quotient):
                steps.append(row.factor.steps(b, x))
            else:
                step = b.zero_if_nan(b.mul(x, row.factor))
                steps.append(b.min(b.max(step, row.low), row.high))
        shift = b.i32(self.shift, lanes)
        zero = b.i32(0, lanes) if row.offset is None else b.sub(row.offset, shift)
        return pack_bytes(b, isa, steps, [zero] * len(steps), self.scheme.unsigned)

    def packs(self, isa: Isa, count: int, valid: int | None) -> bool:
        """True if so many vectors of codes are packed."""
        whole = count == PACKED and valid is None and self.lanes == isa.lanes
        return whole and bool(isa.packs) and not self.scheme.wide

    def codes(self, row: RowParameters, x: ir.Value) -> ir.Value:
        """i8 codes of the vector `x`."""
        b = self.b
        if isinstance(row.factor, Divisor | Quotient):
            assert row.offset is not None
            return to_codes(b, row.factor.steps(b, x), row.offset)
        steps = b.zero_if_nan(b.mul(x, row.factor))
        bits = rounded_bits(b, steps, row.low, row.high)
        return b.truncate(b.add(bits, row.offset) if row.offset else bits, "i8")

    def write(
        self,
        isa: Isa,
        row: RowParameters,
        xs: Iterable[ir.Value],
        to: tuple[Tile, Index],
        columns: Sequence[Index],
        valid: int | None,
    ) -> None:
        """Stores the codes of vectors of a row at these columns of the row `to`."""
        tile, at = to
        if self.packs(isa, len(columns), valid):
            self.b.store(self.packed(isa, row, list(xs)), tile, [at, columns[0]])
            return
        for column, x in zip(columns, xs, strict=True):
            self.b.store(self.codes(row, x), tile, [at, column], valid)

    def store(self, row: RowParameters, tiles: Tiles, at: Indices) -> None:
        """Scale and zero point of a row, where the scheme has them, to a place of the tiles."""
        values = [v for v in (row.scale, row.zero) if v is not None]
        for value, tile in zip(values, tiles, strict=True):
            self.b.store(value, tile, at, 1)
