"""Elements of quantized tensors with equal parameters are selected or moved as codes.

pad (dequantize %x), 0      ->  dequantize (pad %x, zero point)
reduce_window max (...)     ->  dequantize (reduce_window max %x)
select %c, (...), (...)     ->  dequantize (select %c, %x, %y)"""

from collections.abc import Sequence

from jq.formats.blocks import full
from jq.ir import OPS, Op, Program, dtype_of, ir, shape_of
from jq.ir.affine import constant_of
from jq.ir.build import i64_array, integers
from jq.ir.markers import Marker
from jq.ir.ops.base import OpRule
from jq.ir.ops.lattice import FLOAT, Encoded, State, common, of_marker
from jq.ir.ops.movement import RESULT, Order, Orders, inverse, rebuilt
from jq.ir.ops.selection import EXTREMES, combines, reduction, select_codes, written


class Selecting(OpRule):
    """Elements of quantized tensors with equal parameters are selected or moved as codes."""

    def elements(self, program: Program, op: Op) -> tuple[int, ...]:
        return self.of_one_type(op)

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        operands, places = list(op.operands), self.elements(program, op)
        if not places:
            return FLOAT  # it computes
        chosen = [(operands[i], states[i]) for i in places]
        return common(program, chosen, shape_of(op.results[0]))

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        """The op on codes of one set of parameters; constants become codes."""
        first = next(m for m in markers if m is not None)
        codes = []
        for i in self.elements(program, op):
            value, marker = op.operands[i], markers[i]
            found = marker.parts["codes"] if marker else constant_codes(program, value, first)
            if found is None:
                return None
            codes.append(found)
        return chosen(program, first, select_codes(program, op, codes))


def constant_codes(program: Program, value: ir.Value, marker: Marker) -> ir.Value | None:
    """The codes of a constant, with the parameters of a tensor that has one scale."""
    array, state = constant_of(program, value), of_marker(program, marker)
    if array is None or not isinstance(state, Encoded):
        return None
    shape, dtype = shape_of(value), dtype_of(marker.parts["codes"])
    if array.any():
        return None if state.scale is None else OPS.spread(state.code(array), shape)
    if "zero_point" not in marker.parts:
        return full(OPS, 0, shape, dtype)
    zero = OPS.convert(marker.parts["zero_point"], dtype)
    return OPS.broadcast(OPS.reshape(zero, []), shape, [])


def chosen(program: Program, marker: Marker, codes: ir.Value) -> ir.Value:
    """The dequantize of codes in another shape, with the one scale of a marker."""
    shape = shape_of(codes)
    rest = {k: OPS.reshape(v, [1] * len(shape)) for k, v in marker.parts.items() if k != "codes"}
    return rebuilt(program, marker, shape, (0,) * len(shape), {"codes": codes, **rest})


class Pad(Selecting):
    op, typed = "pad", (0, 1)
    along = ("edge_padding_low", "edge_padding_high", "interior_padding")


class Select(Selecting):
    op, typed = "select", (1, 2)


class DynamicUpdateSlice(Selecting):
    op, typed, starts = "dynamic_update_slice", (0, 1), 2


class Scatter(Selecting):
    """Updates that are written as they are, or where they are larger, or smaller."""

    op = "scatter"

    def of_one_type(self, op: Op) -> tuple[int, ...]:
        return (0, 2) if written(op) else ()


class BroadcastInDim(Selecting):
    op, typed = "broadcast_in_dim", (0,)

    def orders(self, op: Op, index: int, order: Order) -> Orders | None:
        """The operand's axes stay in the order of the result's; it would be a transpose else."""
        dims, rank = integers(op, "broadcast_dimensions"), len(shape_of(op.results[0]))
        if index == RESULT:
            result = order
            operand = tuple(sorted(range(len(dims)), key=lambda a: order.index(dims[a])))
        else:
            operand, places = order, sorted(dims)
            moved = dict(zip(places, (dims[a] for a in order), strict=True))
            result = tuple(moved.get(axis, axis) for axis in range(rank))
        back = inverse(result)
        found = {"broadcast_dimensions": i64_array([back[dims[a]] for a in operand])}
        return Orders((operand,), (result,), found)


class Reduce(Selecting):
    """A maximum or minimum over axes, of codes with one scale."""

    op = "reduce"

    def orders(self, op: Op, index: int, order: Order) -> Orders | None:
        """Orders from an operand's; a result says nothing of the axes that are summed."""
        results, dims = op.results, integers(op, "dimensions")
        if index == RESULT:
            return None
        kept = [a for a in range(len(order)) if a not in dims]
        left = tuple(kept.index(a) for a in order if a not in dims)
        back, count = inverse(order), len(results)
        found = {"dimensions": i64_array(sorted(back[a] for a in dims))}
        return Orders((*[order] * count, *[None] * count), (left,) * count, found)

    def elements(self, program: Program, op: Op) -> tuple[int, ...]:
        return (0,) if reduction(program, op) in EXTREMES else ()

    def of_one_type(self, op: Op) -> tuple[int, ...]:
        """The tensor, and what it starts with."""
        return (0, 1) if combines(op) in EXTREMES else ()


class ReduceWindow(Reduce):
    """A pool of maxima or minima, of codes with one scale."""

    op, orders = "reduce_window", OpRule.orders
    along = (
        *("window_dimensions", "window_strides", "base_dilations", "window_dilations"),
        "padding",
    )
