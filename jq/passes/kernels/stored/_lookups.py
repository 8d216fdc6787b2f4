"""Rows of a table that is also the weight of a product, looked up as the product packed it.

    composite "jq.dequantize" (gather %w.blocks, %rows)
    call @jq_gemv(..., %w.packed)
    ->
    multiply (gather %w.packed, places of codes), (gather %w.packed, places of scales)

A table that is tied to the head is stored once. The numbers are those that the format decodes: the
products of codes and scales are exact, or rounded once on both ways."""

import math
from collections.abc import Mapping

import numpy as np

from jq.ir import OPS, Program, at, dtype_of, ir, maker, shape_of
from jq.ir.build import picked, recast
from jq.ir.build import replace as replace_op
from jq.ir.markers import DEQUANTIZE, match
from jq.kernels import Gemv, TensorType
from jq.kernels.gemv.layout import PLANES

Key = frozenset[str | None]  # names of the parts of a weight [N, K]; None: of one that is moved
Packed = tuple[Gemv, ir.Value, ir.Value]  # its product, and operands: packed, scales by column


def share(program: Program, packed: Mapping[Key, Packed]) -> None:
    """Lets lookups of rows read the weights that products have packed."""
    for op in [op for op in program.walk() if packed and match(op, DEQUANTIZE)]:
        found = [v for part in op.operands if (v := maker(part, "stablehlo.gather"))]
        key = frozenset(program.weight_name(lookup.operands[0]) for lookup in found)
        one = len({lookup.operands[1] for lookup in found}) == 1
        if not one or len(found) < len(op.operands) or None in key or key not in packed:
            continue
        (kernel, weight, scale), rows, result = packed[key], found[0].operands[1], op.results[0]
        with at(op):
            numbers = OPS.reshape(OPS.convert(rows, np.int32), [math.prod(shape_of(rows))])
            numbers = OPS.minimum(OPS.maximum(numbers, 0), kernel.n - 1)  # as in a gather
            values = OPS.reshape(Columns(kernel, weight, numbers).values(scale), shape_of(result))
            replace_op(op, [OPS.convert(values, dtype_of(result))])


def readable(kernel: Gemv) -> bool:
    """True if columns of its weight have the bits that the format decodes, at places of 32 bits."""
    rounded = kernel.minimum and kernel.scale == "f32"  # the product and the sum
    small = math.prod(kernel.operands[2].shape) < 1 << 31
    return small and not (rounded or kernel.zero or kernel.stack)


class Columns:
    """Columns of a packed weight, by their numbers i32 [m]."""

    def __init__(self, kernel: Gemv, weight: ir.Value, numbers: ir.Value) -> None:
        self.kernel, self.weight, self.numbers = kernel, weight, numbers
        streams, groups, self.chunks, size = shape_of(weight)
        width, self.panel = kernel.width, kernel.width // streams
        group = OPS.quotient(numbers, width)
        within = OPS.sub(numbers, OPS.minimum(OPS.mul(group, width), max(0, kernel.n - width)))
        stream = OPS.quotient(within, self.panel)
        self.column = OPS.sub(within, OPS.mul(stream, self.panel))
        self.start = OPS.mul(OPS.add(OPS.mul(stream, groups), group), self.chunks * size)

    def values(self, scale: ir.Value) -> ir.Value:
        """f32 [m, K]; `scale` f32 [N'] counts where scales are by column."""
        kernel, layout = self.kernel, self.kernel.layout
        chunks = np.arange(self.chunks)[:, None] * layout.bytes
        records = chunks + layout.first + np.arange(layout.blocks) * layout.record
        value = self._codes(records)
        levels = [self._numbers(records + first, kernel.scale) for first in layout.scales]
        for i, first in enumerate(layout.factors):
            factor = self._numbers(chunks + first, "f16")
            levels[i] = OPS.mul(levels[i], OPS.broadcast(factor, shape_of(levels[i]), (0, 1, 2)))
        levels = levels or [picked(scale, OPS.reshape(self.numbers, [shape_of(value)[0], 1]), 0)]
        for level, join in zip(levels, (OPS.mul, OPS.add), strict=False):
            value = join(value, OPS.broadcast(level, shape_of(value), range(len(shape_of(level)))))
        m, *blocks = shape_of(value)
        return OPS.slice(OPS.reshape(value, [m, math.prod(blocks)]), [0, 0], [m, kernel.k])

    def _codes(self, records: np.ndarray) -> ir.Value:
        """f32 [m, chunks, blocks, block], from records that begin at these bytes."""
        kernel, group, shift, codes = self.kernel, self.kernel.unit.dot.group, 0, None
        for first, width in zip(kernel.layout.planes, PLANES[kernel.bits], strict=True):
            steps = np.arange(kernel.block * width // (8 * group)) * self.panel * group
            stored = self._read(records[..., None] + first + steps, group)
            *lead, _, _ = shape = shape_of(stored)
            fields = [OPS.shift_right(stored, bit) for bit in range(0, 8, width)]
            fields = [OPS.reshape(f, [*shape[:-1], 1, group]) for f in fields]
            part = OPS.reshape(OPS.concatenate(fields, len(shape) - 1), [*lead, kernel.block])
            part = OPS.shift_left(OPS.bit_and(part, (1 << width) - 1 if width < 8 else -1), shift)
            codes = part if codes is None else OPS.bit_or(codes, part)
            shift += width
        offset = kernel.offset if kernel.offset < 128 else -128  # which wraps
        return OPS.convert(OPS.sub(codes, offset), np.float32)

    def _numbers(self, first: np.ndarray, kind: str) -> ir.Value:
        """f32 [m, ...]: numbers of a stored type, of stretches by column that begin at bytes."""
        dtype = TensorType((), kind).dtype
        *shape, size = shape_of(stored := self._read(first, dtype.itemsize))
        stored = OPS.reshape(stored, [*shape, *[size][: size > 1]])
        return OPS.convert(recast(stored, dtype, shape), np.float32)

    def _read(self, first: np.ndarray, size: int) -> ir.Value:
        """i8 [m, ..., size], of stretches likewise: all begin at multiples of `size`."""
        shape = (*shape_of(self.column), *first.shape)
        start = OPS.add(OPS.quotient(self.start, size), self.column)
        places = OPS.spread((first[None] // size).astype(np.int32), shape)
        places = OPS.add(places, OPS.broadcast(start, shape, (0,)))
        rows = OPS.reshape(self.weight, [math.prod(shape_of(self.weight)) // size, size])
        found = picked(rows, OPS.reshape(places, [math.prod(shape), 1]), 0)
        return OPS.reshape(found, [*shape, size])
