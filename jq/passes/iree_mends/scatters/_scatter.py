"""A scatter as plain values: the start of each window, and whether it may be written."""

from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from jq.formats.arrays import clip
from jq.ir import OPS, Op, at, constant_of, create, dtype_of, ir, kind_of, shape_of, stablehlo
from jq.ir.index_range import Element, Range, index_range
from jq.ir.values import combiner


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
        updates: one for each operand, [*places, *windows]."""

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
            most = min(last, int(np.iinfo(dtype_of(begin)).max))
            checks += [OPS.compare(begin, 0, "GE"), OPS.compare(begin, most, "LE")]
            begin = clip(OPS, begin, 0, most)
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
    return stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])


def parts(op: Op) -> tuple[list[ir.Value], ir.Value, list[ir.Value]]:
    """Operands, indices, updates."""
    values = list(op.operands)
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
    return OPS.broadcast(OPS.constant(np.arange(shape[dim], dtype=kind)), shape, [dim])


def body_of(op: Op) -> ir.Block:
    return op.regions[0].blocks[0]


def take_body(op: Op, to: ir.Operation, region: int = 0) -> None:
    """Gives `to` a copy of the op's function, or one of its functions."""
    copy = op.operation.clone()
    copy.regions[region].blocks[0].append_to(to.regions[0])
    for result, value in zip(copy.results, copy.operands, strict=False):
        result.replace_all_uses_with(value)
    copy.erase()


def scatter(
    op: Op, x: ir.Value, i: ir.Value, u: ir.Value, windows: list[int], region: int = 0, **says: Any
) -> ir.Value:
    """Updates `u` of `x` at indices i[n, 1] of its first axis, by a function of `op`."""
    dims = stablehlo.ScatterDimensionNumbers.get(windows, [0], [], [], [0], 1)
    says["scatter_dimension_numbers"] = dims
    made = create("stablehlo.scatter", x.type, x, i, u, regions=1, **says)
    take_body(op, made.owner, region)
    return made


def neutral(op: Op, operand: ir.Value) -> ir.Value | None:
    """The scalar that the function leaves its other argument unchanged by, where there is one."""
    kind, name = dtype_of(operand), combiner(op)
    table: dict[str, float]
    if kind.kind == "c":  # a product by 1 + 0i changes infinities
        return None
    if kind.kind in "biu":
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        ones = high if kind.kind in "bu" else -1
        table = {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "or": 0, "and": ones}
    elif kind in (np.float16, np.float32, np.float64) or kind.name == "bfloat16":
        table = {"add": -0.0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf}
    else:
        return None
    return constant_of(np.array(table[name], kind)) if name in table else None


def zero_of(operand: ir.Value) -> ir.Value:
    kind = dtype_of(operand)
    if kind.kind != "c":
        return constant_of(np.zeros((), kind))
    part = constant_of(np.zeros((), np.float64 if kind == np.complex128 else np.float32))
    return stablehlo.complex(part, part)


_NAMES = """abs add and compare constant convert divide exponential log maximum minimum multiply
    negate not or return rsqrt select sqrt subtract tanh xor"""
_SCALAR = {f"stablehlo.{name}" for name in _NAMES.split()}


def is_arithmetic(op: Op) -> bool:
    """True if the function has no ops but those that IREE has for scalars."""
    return not bool_sums(op) and all(kind_of(o) in _SCALAR for o in body_of(op).operations)


def bool_sums(op: Op) -> list[Any]:
    """Sums of bools, which IREE takes modulo 2."""
    inner = [o.operation for o in body_of(op).operations]
    return [o for o in inner if o.name == "stablehlo.add" and dtype_of(o.results[0]) == np.bool_]


def or_bools(op: Op) -> None:
    for found in bool_sums(op):
        with at(found):
            either = OPS.bit_or(*found.operands)
        found.results[0].replace_all_uses_with(either)
        found.erase()
