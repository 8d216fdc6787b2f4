"""The weights of a part of a workgroup's columns, taken out of their planes and records."""

from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Values, vec
from jq.kernels.gemv.description import Gemv
from jq.kernels.gemv.layout import PLANES
from jq.kernels.tensor import TensorType

Loaded = dict[tuple[int, int, int], ir.Value]  # bytes, by plane, step and vector


@dataclass(frozen=True)
class Part:
    """The part that is computed side by side: `wide` vectors of columns from vector `first` of
    those of workgroup `group`, which begin at `column`; the tile's rows begin at `row`. Panels of
    the weight begin at `panel`; where `there` is 0, there is none, and products are 0."""

    group: Index
    column: Index
    row: Index
    first: Index
    wide: int
    panel: Index = 0
    there: Index = 1


class PanelWeights:
    """Codes and scales of panels of columns side by side."""

    def __init__(self, gemv: Gemv, b: Builder, weights: ir.Value, part: Part) -> None:
        self.gemv, self.b, self.isa, self.weights, self.part = gemv, b, gemv.unit, weights, part
        self.layout, self.planes, self.wide = gemv.layout, PLANES[gemv.bits], part.wide
        # Codes stay unsigned in a product that wants them so; elsewhere the offset is taken out.
        self.unsigned = self.isa.dot.lhs_unsigned

    def _vector(self, j: int) -> tuple[Index, int]:
        """The panel of vector `j`, and which of its vectors that is."""
        b, each, first = self.b, self.gemv.vectors, self.part.first
        if isinstance(first, int):
            panel, vector = divmod(first + j, each)
            return b.offset(self.part.panel, panel), vector
        panels = b.offset(self.part.panel, b.divided(first, each))
        return b.offset(panels, j // each), j % each  # parts are whole panels

    def _codes(self, loaded: Loaded, chunk: Index, block: Index, i: int, j: int) -> ir.Value:
        """Group `i` of a block, of vector `j`, put together from its planes. `loaded` keeps the
        bytes, which hold several groups."""
        b, shift, codes = self.b, 0, None
        for plane, width in enumerate(self.planes):
            step, field = divmod(i, 8 // width)
            key = (plane, step, j)
            if key not in loaded:
                loaded[key] = self._bytes(plane, chunk, block, step, j)
            part = self._field(loaded[key], width, field * width, shift)
            codes = part if codes is None else b.bit_or(codes, part)
            shift += width
        assert codes is not None
        return self._operand(codes)

    def _bytes(self, plane: int, chunk: Index, block: Index, step: int, j: int) -> ir.Value:
        b, gemv = self.b, self.gemv
        size = self.isa.lanes * self.isa.dot.group
        first = self.layout.planes[plane] + (step * gemv.vectors + self._vector(j)[1]) * size
        return self._read(chunk, b.offset(self._record(block), first), j, size)

    def _read(self, chunk: Index, at: Index, j: int, size: int) -> ir.Value:
        where = [self._vector(j)[0], self.part.group, chunk, at]
        return self.b.load(self.weights, where, vec(size, "i8"))

    def _field(self, stored: ir.Value, width: int, first: int, to: int) -> ir.Value:
        """`width` bits of every byte, from bit `first` brought to bit `to`; the others 0."""
        if width == 8:
            return stored
        b, kind, by = self.b, stored.type, first - to
        if by:
            size = ir.VectorType(kind).shape[0]
            words = b.bitcast(stored, vec(size // 4, "i32"))
            words = b.shift_right(words, by) if by > 0 else b.shift_left(words, -by)
            stored = b.bitcast(words, vec(size, "i8"))
        mask = ((1 << width) - 1) << to
        return b.bit_and(stored, b.constant(kind, mask if mask < 128 else mask - 256))

    def _operand(self, codes: ir.Value) -> ir.Value:
        b, element = self.b, self.isa.dot.element
        if self.gemv.offset and not self.unsigned:
            offset = self.gemv.offset  # 128 wraps
            codes = b.sub(codes, b.constant(codes.type, offset if offset < 128 else -128))
        return codes if element == "i8" else b.extend(codes, element)

    def _level(self, chunk: Index, block: Index, at: int) -> list[ir.Value]:
        """The scales (or minima) of a block, by vector: f32, integers still without a factor."""
        b, kind = self.b, self.gemv.scale
        first = b.offset(self._record(block), at)
        found = [self._numbers(chunk, first, j, kind) for j in range(self.wide)]
        return [b.to_f32(b.extend(v, "i32")) if kind == "i8" else b.widen(v) for v in found]

    def _factors(self, chunk: Index) -> list[list[ir.Value]]:
        """Factors of a chunk's integers, f32: scales and minima, by vector."""
        return [
            [self.b.widen(self._numbers(chunk, at, j, "f16")) for j in range(self.wide)]
            for at in self.layout.factors
        ]

    def _zeros(self, chunk: Index, block: Index) -> list[ir.Value]:
        """The zero points of a block, by vector: f32."""
        b, lanes = self.b, self.isa.lanes
        first = b.offset(self._record(block), self.layout.zero)
        zeros = []
        for j in range(self.wide):
            wide = b.extend_unsigned(self._read(chunk, first, j, lanes), "i32")
            high = self._vector(j)[1] > 0
            wide = b.shift_right(wide, 4) if high else b.bit_and(wide, b.i32(15, lanes))
            zeros.append(b.to_f32(wide))
        return zeros

    def _numbers(self, chunk: Index, first: Index, j: int, kind: str) -> ir.Value:
        """One vector `j` of numbers by column that begin at byte `first` of a chunk."""
        b, lanes = self.b, self.isa.lanes
        size = lanes * TensorType((), kind).dtype.itemsize
        stored = self._read(chunk, b.offset(first, self._vector(j)[1] * size), j, size)
        return stored if kind == "i8" else b.bitcast(stored, vec(lanes, kind))

    def _record(self, block: Index) -> Index:
        return self.b.offset(self.b.scaled(block, self.layout.record), self.layout.first)


def joined(b: Builder, digits: Values) -> list[ir.Value]:
    """The sums of one to three digits as one or two integers, the second 2^8 times smaller: all but
    the last digit fit one."""
    first, *rest = digits
    for digit in rest[:1] if len(rest) == 2 else []:
        first = b.add(b.shift_left(first, 8), digit)
    return [first, *rest[-1:]]


def number_of(b: Builder, joined: Values, lanes: int) -> ir.Value:
    """One or two such integers as one f32 number."""
    first, *rest = (b.to_f32(v) for v in joined)
    return b.fma(first, b.f32(256.0, lanes), rest[0]) if rest else first
