"""Ops that move, choose and repeat elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from suites.differential.draw import axis_of, drawer, has_axis, partner, shape_of
from suites.differential.graph import LARGEST, Graph, Value


def ints(values: Sequence[int]) -> str:
    return f"array<i64{': ' if len(values) else ''}{', '.join(map(str, values))}>"


@drawer("input", 2)
def another_input(g: Graph) -> Value | None:
    kind = g.choose(["f32", "f32", "f32", "bf16", "f16", "i8", "i16", "i32", "ui8", "i1"])
    shape = shape_of(g)
    return g.input(shape, kind) if math.prod(shape) <= LARGEST // 2 else None


@drawer("iota", 1)
def iota(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.kind in ("f32", "i32", "i8") and bool(v.shape))
    if v is None:
        return None
    most, axis = float(max(v.shape)), axis_of(g, v)
    return g.op("iota", [], v.shape, v.kind, most, 1.0, f"iota_dimension = {axis} : i64")


@drawer("transpose", 3)
def transpose(g: Graph) -> Value | None:
    v = g.pick(has_axis)
    if v is None:
        return None
    order = [int(a) for a in g.rng.permutation(len(v.shape))]
    return g.moved("transpose", v, [v.shape[a] for a in order], f"permutation = {ints(order)}")


@drawer("reshape", 3)
def reshape(g: Graph) -> Value | None:
    v = g.pick()
    if v is None:
        return None
    return g.moved("reshape", v, other_shape(g, v.size))


def other_shape(g: Graph, size: int) -> tuple[int, ...]:
    """Factors of a number, ones among them, in a drawn order."""
    factors, left, p = [], size, 2
    while left > 1:
        while left % p == 0:
            factors, left = [*factors, p], left // p
        p += 1
    shape = [1] * int(g.rng.integers(1 if size > 1 else 0, 5))
    for factor in factors:
        shape[int(g.rng.integers(len(shape)))] *= factor
    return tuple(shape)


@drawer("broadcast_in_dim", 3)
def broadcast(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.size <= LARGEST // 8)
    if v is None:
        return None
    rank = len(v.shape)
    axes = sorted(int(a) for a in g.rng.permutation(rank + 1)[:rank])
    shape = [g.choose((1, 2, 3)) for _ in range(rank + 1)]
    for axis, n in zip(axes, v.shape, strict=True):
        shape[axis] = n if n > 1 or g.chance(0.5) else 3
    if math.prod(shape) > LARGEST:
        return None
    return g.moved("broadcast_in_dim", v, shape, f"broadcast_dimensions = {ints(axes)}")


@drawer("reverse", 2)
def reverse(g: Graph) -> Value | None:
    v = g.pick(has_axis)
    if v is None:
        return None
    axes = sorted(a for a in range(len(v.shape)) if g.chance(0.5))
    return g.moved("reverse", v, v.shape, f"dimensions = {ints(axes)}")


@drawer("slice", 3)
def slices(g: Graph) -> Value | None:
    v = g.pick(has_axis)
    if v is None:
        return None
    first = [int(g.rng.integers(0, n)) if g.chance(0.5) else 0 for n in v.shape]
    last = [int(g.rng.integers(a + 1, n + 1)) for a, n in zip(first, v.shape, strict=True)]
    step = [g.choose((1, 1, 2, 3)) for _ in v.shape]
    shape = [-(-(b - a) // s) for a, b, s in zip(first, last, step, strict=True)]
    known = f"start_indices = {ints(first)}, limit_indices = {ints(last)}, strides = {ints(step)}"
    return g.moved("slice", v, shape, known)


@drawer("pad", 3)
def pad(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.kind != "i1" and v.size <= LARGEST // 8)
    if v is None:
        return None
    low = [int(g.rng.integers(-1 if n > 2 else 0, 3)) for n in v.shape]
    high = [int(g.rng.integers(-1 if n > 2 else 0, 3)) for n in v.shape]
    inner = [g.choose((0, 0, 0, 1)) for _ in v.shape]
    shape = [a + b + n + (n - 1) * i for a, b, n, i in zip(low, high, v.shape, inner, strict=True)]
    if min(shape, default=1) < 1 or math.prod(shape) > LARGEST:
        return None
    fill = float(g.choose([0, 0, 0, 3]))
    known = max(v.most, fill), min(v.step, 1.0)
    edges = f"edge_padding_low = {ints(low)}, edge_padding_high = {ints(high)}"
    written = f"{edges}, interior_padding = {ints(inner)}"
    return g.op("pad", [v, g.scalar(fill, v.kind)], shape, v.kind, *known, written)


@drawer("concatenate", 3)
def concatenate(g: Graph) -> Value | None:
    v = g.pick(lambda v: bool(v.shape) and v.size <= LARGEST // 4)
    if v is None:
        return None
    axis = axis_of(g, v)
    others = [partner(g, v) for _ in range(int(g.rng.integers(1, 3)))]
    shape = list(v.shape)
    shape[axis] *= 1 + len(others)
    known = max(u.most for u in (v, *others)), min(u.step for u in (v, *others))
    return g.op("concatenate", [v, *others], shape, v.kind, *known, f"dimension = {axis} : i64")


@drawer("dynamic_slice", 2)
def dynamic_slice(g: Graph) -> Value | None:
    v = g.pick(has_axis)
    if v is None:
        return None
    shape = [int(g.rng.integers(1, n + 1)) for n in v.shape]
    return g.moved("dynamic_slice", v, shape, f"slice_sizes = {ints(shape)}", *_places(g, v))


@drawer("dynamic_update_slice", 2)
def dynamic_update_slice(g: Graph) -> Value | None:
    v = g.pick(has_axis)
    if v is None:
        return None
    shape = [int(g.rng.integers(1, n + 1)) for n in v.shape]
    zeros, ones = ints([0] * len(shape)), ints([1] * len(shape))
    known = f"start_indices = {zeros}, limit_indices = {ints(shape)}, strides = {ones}"
    update = g.moved("slice", partner(g, v), shape, known)
    result = max(v.most, update.most), min(v.step, update.step)
    return g.op("dynamic_update_slice", [v, update, *_places(g, v)], v.shape, v.kind, *result)


def _places(g: Graph, v: Value) -> list[Value]:
    """An index for each axis, also out of bounds."""
    return [index(g, n + 2) for n in v.shape]


def index(g: Graph, most: int) -> Value:
    """A number of type i32: a constant, or of the data."""
    v = g.pick(lambda v: v.kind == "i32" and v.size == 1)
    if v is None or g.chance(0.5):
        return g.scalar(int(g.rng.integers(-1, most)), "i32")
    return g.moved("reshape", v, ())


@drawer("gather", 3)
def gather(g: Graph) -> Value | None:
    """Rows along an axis by indices, some of them out of bounds; or a lookup in a weight."""
    if g.chance(0.4):
        v = g.weight((g.choose((3, 9, 33)), g.choose((4, 8, 32))), "f32", 1, rows=True)
        axis = 0
    elif (found := g.pick(has_axis)) is not None:
        v, axis = found, axis_of(g, found)
    else:
        return None
    at = g.pick(lambda u: u.kind == "i32" and 0 < u.size <= 16)
    if at is None:
        shape = tuple(int(n) for n in g.rng.integers(1, 4, int(g.rng.integers(1, 3))))
        at = g.constant(g.rng.integers(-1, v.shape[axis] + 2, shape), "i32")
    if math.prod(at.shape) * v.size // v.shape[axis] > LARGEST:
        return None
    return rows_of(g, v, at, axis)


def rows_of(g: Graph, v: Value, at: Value, axis: int) -> Value:
    """Slices that indices choose along an axis."""
    rank, sizes = len(at.shape), list(v.shape)
    sizes[axis] = 1
    shape = (*at.shape, *(n for a, n in enumerate(v.shape) if a != axis))
    offset = list(range(rank, rank + len(v.shape) - 1))
    numbers = (
        f"#stablehlo.gather<offset_dims = {offset}, collapsed_slice_dims = [{axis}],"
        f" start_index_map = [{axis}], index_vector_dim = {rank}>"
    )
    known = f"dimension_numbers = {numbers}, slice_sizes = {ints(sizes)}"
    return g.moved("gather", v, shape, known, at)
