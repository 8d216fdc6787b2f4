"""Ops that move elements of stored tensors: in another order, in part, or to another float type.

Where no block is cut. In a `scan` a layer reads its weight by a dynamic slice of the first axis."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jq.formats.blocks import cut_axes, cut_range
from jq.ir import OPS, Op, Program, dtype_of, ir, shape_of
from jq.ir.build import i64_array, integers, like
from jq.ir.markers import Marker, dequantize
from jq.ir.ops.base import Axes, Movement
from jq.ir.ops.movement import plain, rebuilt


class Transpose(Movement):
    """A tensor is transposed as it is stored."""

    op = "transpose"

    def back(self, op: Op, axes: Axes) -> Axes:
        order = integers(op, "permutation")
        return frozenset(order[a] for a in axes)

    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        if not plain(marker):
            return None
        order = integers(op, "permutation")
        parts = {k: OPS.transpose(v, order) for k, v in marker.parts.items()}
        block = tuple(marker.encoding.block[a] for a in order)
        return rebuilt(program, marker, shape_of(op.results[0]), block, parts)


class Reverse(Movement):
    """A tensor is reversed as it is stored, if no block is cut."""

    op, naming = "reverse", ("dimensions",)

    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        enc, axes = marker.encoding, integers(op, "dimensions")
        cut = any(enc.block[a] > 1 and enc.shape[a] % enc.block[a] for a in axes)
        if cut or not plain(marker):
            return None

        def reversed_(part: ir.Value) -> ir.Value:
            longer = [a for a in axes if shape_of(part)[a] > 1]
            if not longer:
                return part
            return like(op, [part], shape_of(part), dtype_of(part), dimensions=i64_array(longer))

        parts = {k: reversed_(v) for k, v in marker.parts.items()}
        return rebuilt(program, marker, enc.shape, enc.block, parts)


class Convert(Movement):
    """A conversion between float types changes the type that is dequantized to.

    A value of the codes is rounded once, to the type that is wanted in the end: what lies between
    is taken out, also where it is the narrower one (a bfloat16 weight of a float32 product)."""

    op = "convert"
    typed = ()  # its numbers are rounded

    def applies(self, op: Op) -> bool:
        """True for float types that products are computed in; fp8 and integers change values."""
        after = dtype_of(op.results[0])
        return after.kind in "fV" and after.itemsize > 1

    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        after = dtype_of(op.results[0])
        return dequantize(program, marker.encoding, marker.parts, after, tensor=marker.tensor)


class Slice(Movement):
    """A tensor is sliced as it is stored, if no block is cut."""

    op, along = "slice", ("start_indices", "limit_indices", "strides")

    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        start, limit, stride = (integers(op, key) for key in self.along)
        enc, after = marker.encoding, shape_of(op.results[0])
        bounds = {k: [(0, n, 1) for n in shape_of(v)] for k, v in marker.parts.items()}
        for axis in (a for a, n in enumerate(enc.shape) if after[a] != n):
            cut = cut_range(enc, axis, start[axis], limit[axis])
            if cut is None or (stride[axis] > 1 and cut_axes(enc, axis, 1) is None):
                return None
            for name, (a, low, high) in with_sum(cut, bounds).items():
                bounds[name][a] = (low, high, stride[axis])
        parts = {k: _slice(op, marker.parts[k], b) for k, b in bounds.items()}
        return rebuilt(program, marker, after, enc.block, parts)


def with_sum(cut: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """The cut of the sums of blocks, too: that of the scales. One of a whole axis is dropped."""
    if "sum" not in parts:
        return cut
    if "scale" in cut:
        return cut | {"sum": cut["scale"]}
    del parts["sum"]
    return cut


def _slice(op: Op, part: ir.Value, bounds: Sequence[tuple[int, int, int]]) -> ir.Value:
    if list(bounds) == [(0, n, 1) for n in shape_of(part)]:
        return part
    low, high, by = zip(*bounds, strict=True)
    size = [-(-(b - a) // s) for a, b, s in bounds]
    names = zip(Slice.along, map(i64_array, (low, high, by)), strict=True)
    return like(op, [part], size, dtype_of(part), **dict(names))


class DynamicSlice(Movement):
    """A tensor is sliced as it is stored, at places that are computed, if no block is cut."""

    op, along, starts = "dynamic_slice", ("slice_sizes",), 1

    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        enc, after = marker.encoding, shape_of(op.results[0])
        starts = list(op.operands)[1:]
        zero = OPS.constant(np.zeros((), dtype_of(starts[0]) if starts else np.int32))
        at = {k: [(zero, n) for n in shape_of(v)] for k, v in marker.parts.items()}
        for axis in (a for a, n in enumerate(enc.shape) if after[a] != n):
            cut = cut_axes(enc, axis, 1)  # from any index on
            if cut is None:
                return None
            for name, a in with_sum({k: a for k, a in cut.items() if a is not None}, at).items():
                at[name][a] = (starts[axis], after[axis])
        parts = {k: _dynamic(op, marker.parts[k], where) for k, where in at.items()}
        return rebuilt(program, marker, after, enc.block, parts)


def _dynamic(op: Op, part: ir.Value, at: Sequence[tuple[ir.Value, int]]) -> ir.Value:
    starts, sizes = zip(*at, strict=True)
    if sizes == shape_of(part):
        return part
    return like(op, [part, *starts], sizes, dtype_of(part), slice_sizes=i64_array(sizes))
