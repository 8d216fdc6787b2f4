"""A scatter as plain values: the start of each window, and whether it may be written."""

from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from jq.ir import Op, dtype_of, ir, shape_of, stablehlo
from jq.ir.arrays import StableHloOps
from jq.ir.index_range import Element, Range, index_range

OPS = StableHloOps()


@dataclass(frozen=True)
class Scatter:
    """A scatter's operands and updates, in one order of axes.

    Attributes:
        shape: of the operands.
        windows: sizes of a window along every axis of the operands; 1 where it has none.
        places: sizes of the axes of the indices that count windows.
        begins: for the axes that have one, i32 or i64[places]: where each window begins, clamped
            into the operand. Elsewhere windows begin at 0.
        inside: i1[places], whether the whole window lies in the operand; None: all of them do.
        updates: one for each operand, [*places, *windows].
    """

    shape: tuple[int, ...]
    windows: tuple[int, ...]
    places: tuple[int, ...]
    begins: dict[int, ir.Value]
    inside: ir.Value | None
    updates: tuple[ir.Value, ...]

    @property
    def count(self) -> int:
        return prod(self.places)


def read(op: Op) -> Scatter:
    """Builds the values at the current insertion point."""
    dims, (operands, indices, updates) = numbers(op), parts(op)
    shape, whole = shape_of(operands[0]), shape_of(indices)
    places = tuple(n for a, n in enumerate(whole) if a != dims.index_vector_dim)
    sizes = iter([shape_of(updates[0])[a] for a in dims.update_window_dims])
    without = {*dims.inserted_window_dims, *dims.input_batching_dims}
    windows = tuple(1 if a in without else next(sizes) for a in range(len(shape)))
    kind = np.dtype(np.int32 if prod(shape) < np.iinfo(np.int32).max else np.int64)
    begins: dict[int, ir.Value] = {}
    checks: list[ir.Value] = []
    for k, axis in enumerate(dims.scattered_dims_to_operand_dims):
        last = shape[axis] - windows[axis]
        begin, reach = component(indices, dims.index_vector_dim, k, places)
        if reach[0] < 0 or reach[1] > last:
            least, most = (_full(v, begin) for v in (0, last))
            checks += [OPS.compare(begin, least, "GE"), OPS.compare(begin, most, "LE")]
            begin = OPS.minimum(OPS.maximum(begin, least), most)
        if shape[axis] != windows[axis]:
            begins[axis] = OPS.convert(begin, kind)
    for axis, counted in zip(
        dims.input_batching_dims, dims.scatter_indices_batching_dims, strict=True
    ):
        dim = counted - (dims.index_vector_dim < counted)
        begins[axis] = iota(places, dim, kind)
    order = [a for a in range(len(shape_of(updates[0]))) if a not in dims.update_window_dims]
    order += list(dims.update_window_dims)
    moved = [OPS.reshape(OPS.transpose(u, order), (*places, *windows)) for u in updates]
    inside = reduce(OPS.bit_and, checks) if checks else None
    return Scatter(shape, windows, places, begins, inside, tuple(moved))


def numbers(op: Op) -> Any:
    return stablehlo.ScatterDimensionNumbers(op.operation.attributes["scatter_dimension_numbers"])


def parts(op: Op) -> tuple[list[ir.Value], ir.Value, list[ir.Value]]:
    """Operands, indices, updates."""
    values = list(op.operation.operands)
    n = len(values) // 2
    return values[:n], values[n], values[n + 1 :]


def component(
    indices: ir.Value, vector_dim: int, k: int, places: tuple[int, ...]
) -> tuple[ir.Value, Range]:
    """Number `k` of each index, i32 or i64[places], and what is known about it."""
    shape = shape_of(indices)
    at = None if vector_dim == len(shape) else Element(vector_dim, k)
    reach = index_range(indices, at)
    if at is not None:
        start, limit = [0] * len(shape), list(shape)
        start[vector_dim], limit[vector_dim] = k, k + 1
        indices = OPS.reshape(OPS.slice(indices, start, limit), places)
    kind = dtype_of(indices)
    small = kind.itemsize < 4 or kind == np.int32
    # The upper half of ui64, which no tensor reaches, becomes negative: out of range as well.
    reach = reach if kind != np.uint64 or reach[1] < 1 << 63 else (-1, reach[1])
    return OPS.convert(indices, np.int32 if small else np.int64), reach


def iota(shape: tuple[int, ...], dim: int, kind: Any) -> ir.Value:
    """The position along an axis, at every element."""
    count = OPS.constant(np.arange(shape[dim], dtype=kind))
    return OPS.broadcast(count, shape, [dim])


def _full(value: int, like: ir.Value) -> ir.Value:
    kind = dtype_of(like)
    within = min(value, int(np.iinfo(kind).max))
    return OPS.broadcast(OPS.constant(np.array(within, kind)), shape_of(like), [])
