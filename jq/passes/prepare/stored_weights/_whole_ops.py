"""An op on one layer, or on some rows, of a weight, done to all of them at once.

    reshape %row : [2, 5, 32] -> [2, 5, 4, 8]        (2, 5: from the indices)
    ->
    reshape %all : [count, 32] -> [count, 4, 8]

The axes that come from the indices become one, the first. Each function gives None where an op does
something else to different layers or rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.ir import OPS, Op, Program, dtype_of, evaluate, ir, kind_of, maker, shape_of, stablehlo
from jq.ir.build import i64_array, i64_attr, integer, integers, like

BITS = {"and", "not", "or", "shift_left", "shift_right_arithmetic", "shift_right_logical", "xor"}
NUMBERS = {"add", "convert", "divide", "multiply", "negate", "power", "remainder", "subtract"}
CHOICES = {"abs", "compare", "exponential", "floor", "maximum", "minimum", "select", "sign"}
EACH = BITS | NUMBERS | CHOICES
MOVED = {"reshape", "transpose", "broadcast_in_dim", "slice", "bitcast_convert"}


@dataclass(frozen=True)
class Whole:
    """All layers or rows: [count, *rest] for a value whose first `lead` axes come from indices."""

    value: ir.Value
    lead: int

    @property
    def rest(self) -> list[int]:
        return list(shape_of(self.value)[1:])


def of_each(op: Op, parts: Sequence[ir.Value], first: Whole) -> Whole | None:
    shape = shape_of(first.value)
    if any(shape_of(p) != shape for p in parts):
        return None
    return Whole(like(op, parts, shape, dtype_of(op.results[0])), first.lead)


def concatenated(op: Op, parts: Sequence[ir.Value], first: Whole) -> Whole | None:
    axis, lead = integer(op, "dimension"), first.lead
    if axis < lead:
        return None
    shape = list(shape_of(parts[0]))
    shape[axis - lead + 1] = sum(shape_of(p)[axis - lead + 1] for p in parts)
    dimension = i64_attr(axis - lead + 1)
    return Whole(like(op, parts, shape, dtype_of(parts[0]), dimension=dimension), lead)


ORDERS = ("permutation", "broadcast_dimensions")  # of axes, the leading ones in their places


def moved(op: Op, w: Whole) -> Whole | None:
    """An op on one operand that moves elements of each alone, or reads their bits."""
    before, after, count = shape_of(op.operands[0]), shape_of(op.results[0]), shape_of(w.value)[0]
    lead, attrs, outer = w.lead, dict[str, ir.Attribute](), math.prod(before[: w.lead])
    if kind_of(op) == "stablehlo.reshape":
        found = (n for n in range(len(after) + 1) if math.prod(after[:n]) == outer)
        lead = next(found, -1)
    if lead < 0 or not math.prod(after) or math.prod(after[:lead]) != outer:
        return None
    for key in (key for key in ORDERS if key in op.attributes):
        order = list(integers(op, key))
        if order[:lead] != list(range(lead)):
            return None
        attrs[key] = i64_array([0, *(a - lead + 1 for a in order[lead:])])
    for key, whole in {"start_indices": 0, "limit_indices": count, "strides": 1}.items():
        if key in op.attributes:
            attrs[key] = i64_array([whole, *integers(op, key)[lead:]])
    shape = [count, *after[lead:]]
    return Whole(like(op, [w.value], shape, dtype_of(op.results[0]), **attrs), lead)


def from_table(program: Program, op: Op, w: Whole) -> Whole | None:
    """Numbers of a table that is the same for all; the indices are what was looked up."""
    table = evaluate(program, op.operands[0])
    d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    result, shift = op.results[0], 1 - w.lead
    if table is None or any(a < w.lead for a in d.offset_dims) or list(d.operand_batching_dims):
        return None
    axes, last = [a + shift for a in d.offset_dims], d.index_vector_dim + shift
    gone, of_index = list(d.collapsed_slice_dims), list(d.start_index_map)
    numbers = stablehlo.GatherDimensionNumbers.get(axes, gone, [], [], of_index, last)
    shape = [shape_of(w.value)[0], *shape_of(result)[w.lead :]]
    operands = [OPS.constant(np.asarray(table)), w.value]
    return Whole(like(op, operands, shape, dtype_of(result), dimension_numbers=numbers), w.lead)


SLICE, GATHER = "stablehlo.dynamic_slice", "stablehlo.gather"


@dataclass(frozen=True)
class Key:
    """Kind of a lookup: how many things there are to look up, and the indices."""

    kind: str
    count: int
    index: ir.Value


def key_of(program: Program, op: Op) -> Key | None:
    """The key of a lookup of whole layers or rows of a weight; None for other ops."""
    name = op.operation.name
    if name not in (SLICE, GATHER) or program.weight_name(op.operands[0]) is None:
        return None
    shape, index = shape_of(op.operands[0]), op.operands[1]
    if not shape or tuple(integers(op, "slice_sizes")) != (1, *shape[1:]):
        return None
    if name == GATHER:
        d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        rank = len(shape_of(op.results[0]))
        plain = list(d.start_index_map) == [0] == list(d.collapsed_slice_dims)
        last = list(d.offset_dims) == list(range(rank - len(shape) + 1, rank))
        if not plain or not last or list(d.operand_batching_dims):
            return None
    return Key(name, shape[0], index)


def is_looked_up(program: Program, value: ir.Value) -> bool:
    """True if a value is one layer, or some rows, of a weight."""
    op = maker(value)
    if op is not None and op.operation.name == "stablehlo.reshape":
        op = maker(op.operands[0])
    return op is not None and key_of(program, op) is not None
