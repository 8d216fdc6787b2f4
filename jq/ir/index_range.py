"""Bounds of an integer tensor's elements, proven from the ops that make it.

    %i = clamp(0, %x, 9) * 6 + iota(6)   ->   (0, 59), whatever %x is

An op that is not known here, or may wrap, proves nothing but its type's own range. So memory that
is addressed by what has been proven is ours."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.ir.build import direction_of, integer, integers
from jq.ir.constants import dense_array
from jq.ir.types import dtype_of, shape_of
from jq.ir.values import Op, maker

Range = tuple[int, int]  # both inclusive
ANY: Range = (-(1 << 1100), 1 << 1100)
DEEPEST = 48  # ops between a value and what is known about it


@dataclass(frozen=True)
class Element:
    """Element `index` along `axis`; all of the tensor where there is no `Element`."""

    axis: int
    index: int


def index_range(value: ir.Value, place: Element | None = None, depth: int = DEEPEST) -> Range:
    """The range of all elements of an integer or bool tensor, or of those at `place`."""
    owner = maker(value)
    limits = _limits(value)
    if owner is None or depth == 0 or 0 in shape_of(value):
        return limits
    rule = _RULES.get(owner.operation.name.removeprefix("stablehlo."))
    if rule is None:
        return limits

    def read(i: int, where: Element | None) -> Range:
        operand = owner.operands[i]
        return index_range(operand, where if shape_of(operand) else None, depth - 1)

    low, high = rule(owner, place, read)
    return (low, high) if limits[0] <= low and high <= limits[1] else limits


def _limits(value: ir.Value) -> Range:
    kind = dtype_of(value)
    if kind.kind == "b":
        return 0, 1
    if kind.kind in "iu":
        return int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    return ANY  # floats, which no conversion here keeps


Read = Callable[[int, Element | None], Range]
Rule = Callable[[Any, Element | None, Read], Range]


def _union(ranges: list[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _constant(op: Op, place: Element | None, read: Read) -> Range:
    array = dense_array(op.results[0])
    if array is None or array.dtype.kind not in "iub":
        return _limits(op.results[0])
    if place is not None:
        array = array.take(place.index, place.axis)
    return int(array.min()), int(array.max())


def _iota(op: Op, place: Element | None, read: Read) -> Range:
    axis = integer(op, "iota_dimension")
    if place is not None and place.axis == axis:
        return place.index, place.index
    return 0, shape_of(op.results[0])[axis] - 1


def _broadcast(op: Op, place: Element | None, read: Read) -> Range:
    dims, shape = integers(op, "broadcast_dimensions"), shape_of(op.operands[0])
    if place is None or place.axis not in dims:
        return read(0, None)
    axis = dims.index(place.axis)
    return read(0, Element(axis, 0 if shape[axis] == 1 else place.index))


def _reshape(op: Op, place: Element | None, read: Read) -> Range:
    """An axis stays one where as many elements lie in front of it and along it."""
    before, after = shape_of(op.operands[0]), shape_of(op.results[0])
    if place is not None:
        for axis, n in enumerate(before):
            ahead = np.prod(before[:axis]) == np.prod(after[: place.axis])
            if ahead and n == after[place.axis]:
                return read(0, Element(axis, place.index))
    return read(0, None)


def _transpose(op: Op, place: Element | None, read: Read) -> Range:
    if place is None:
        return read(0, None)
    return read(0, Element(integers(op, "permutation")[place.axis], place.index))


def _slice(op: Op, place: Element | None, read: Read) -> Range:
    starts, strides = integers(op, "start_indices"), integers(op, "strides")
    if place is None:  # one element along an axis is that element; all that is known holds
        taken, whole = shape_of(op.results[0]), shape_of(op.operands[0])
        single = [Element(a, starts[a]) for a, n in enumerate(taken) if n == 1 < whole[a]]
        known = [read(0, one) for one in single] or [read(0, None)]
        return max(low for low, _ in known), min(high for _, high in known)
    return read(0, Element(place.axis, starts[place.axis] + place.index * strides[place.axis]))


def _concatenate(op: Op, place: Element | None, read: Read) -> Range:
    operands = list(op.operands)
    axis = integer(op, "dimension")
    if place is None or place.axis != axis:
        parts = [i for i, v in enumerate(operands) if 0 not in shape_of(v)]
        return _union([read(i, place) for i in parts])
    left = place.index
    for i, operand in enumerate(operands):
        if left < shape_of(operand)[axis]:
            return read(i, Element(axis, left))
        left -= shape_of(operand)[axis]
    return _limits(op.results[0])


def _clamp(op: Op, place: Element | None, read: Read) -> Range:
    (a, b), (low, high), (c, d) = read(0, place), read(1, place), read(2, place)
    return min(max(low, a), c), min(max(high, b), d)


def _pairwise(combine: Callable[[int, int], int]) -> Rule:
    """The rule of what grows, or falls, with each of two operands: extremes are at corners."""

    def rule(op: Op, place: Element | None, read: Read) -> Range:
        left, right = read(0, place), read(1, place)
        corners = [combine(a, b) for a in left for b in right]
        return min(corners), max(corners)

    return rule


def _select(op: Op, place: Element | None, read: Read) -> Range:
    chosen = maker(op.operands[0])
    truth = None if chosen is None else _decided(chosen)
    if truth is None:
        return _union([read(1, place), read(2, place)])
    return read(1 if truth else 2, place)


def _decided(op: Op) -> bool | None:
    """The result where all elements have the same, or None: an iota is never below 0."""
    if op.operation.name == "stablehlo.broadcast_in_dim":
        inner = maker(op.operands[0])
        return None if inner is None else _decided(inner)
    if op.operation.name != "stablehlo.compare":
        return None
    direction = direction_of(op)
    (a, b), (c, d) = (index_range(v, depth=DEEPEST // 2) for v in op.operands)
    always = {"LT": b < c, "LE": b <= c, "GT": a > d, "GE": a >= d}
    never = {"LT": a >= d, "LE": a > d, "GT": b <= c, "GE": b < c}
    if always.get(direction):
        return True
    return False if never.get(direction) else None


def _and(op: Op, place: Element | None, read: Read) -> Range:
    natural = [high for low, high in (read(0, place), read(1, place)) if low >= 0]
    return (0, min(natural)) if natural else _limits(op.results[0])


def _some(op: Op, place: Element | None, read: Read) -> Range:
    return read(0, None)


def _barrier(op: Op, place: Element | None, read: Read) -> Range:
    several = len(op.operands) > 1  # which of them is not known here
    return ANY if several else read(0, place)


_RULES: dict[str, Rule] = {
    "constant": _constant,
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "clamp": _clamp,
    "maximum": _pairwise(max),
    "minimum": _pairwise(min),
    "add": _pairwise(lambda a, b: a + b),
    "subtract": _pairwise(lambda a, b: a - b),
    "multiply": _pairwise(lambda a, b: a * b),
    "select": _select,
    "and": _and,
    "convert": lambda op, place, read: read(0, place),
    "gather": _some,
    "dynamic_slice": _some,
    "reverse": _some,
    "optimization_barrier": _barrier,
}
