"""Ops on values that are stored in another order of axes (see `jq.ir.ops.movement`)."""

from collections.abc import Sequence

from jq.ir import OPS, Op, Program, dtype_of, ir, kind_of, shape_of, tensor_type
from jq.ir.build import copied
from jq.ir.markers import DEQUANTIZE, QUANTIZE, Marker, dequantize, match, quantize
from jq.ir.ops.lookup import known_ops
from jq.ir.ops.movement import Order, Orders, every_axis, permuted, plain
from jq.ir.pointwise import POINTWISE


def orders_of(op: Op, index: int, order: Order) -> Orders | None:
    """The orders of an op where its operand `index` has one, or its results (`RESULT`); None where
    it has to read or make the value as it is."""
    if marker := match(op, DEQUANTIZE, QUANTIZE):
        return every_axis(op, order) if marker.kind == QUANTIZE or plain(marker) else None
    rule = known_ops().get(kind_of(op).removeprefix("stablehlo."))
    found = None if rule is None else rule.orders(op, index, order)
    return every_axis(op, order) if found is None and kind_of(op) in POINTWISE else found


def compute_in(
    program: Program, op: Op, orders: Orders, operands: Sequence[ir.Value]
) -> list[ir.Value]:
    """The op on operands that are stored in its orders, at the current insertion point."""
    if marker := match(op, DEQUANTIZE, QUANTIZE):
        return [_marker(program, marker, orders, operands)]
    if op.operation.name == "stablehlo.composite":
        return _by_elements(op, orders, operands)
    placed = [operands[i] for i in orders.places] if orders.places else operands
    new = copied(op, placed)
    for key, attribute in orders.attributes.items():
        new.attributes[key] = attribute
    for result, order in zip(new.results, orders.results, strict=True):
        if order is not None:
            result.set_type(tensor_type(permuted(shape_of(result), order), dtype_of(result)))
    return list(new.results)


def _by_elements(op: Op, orders: Orders, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """A composite, whose definition is of fixed shapes: it computes each element by itself, and
    gets them in the order in which they are stored, in the shape that it takes."""
    pairs = zip(op.operands, operands, strict=True)
    given = [OPS.reshape(value, shape_of(old)) for old, value in pairs]
    return [
        result if order is None else OPS.reshape(result, permuted(shape_of(result), order))
        for result, order in zip(copied(op, given).results, orders.results, strict=True)
    ]


def _marker(
    program: Program, marker: Marker, orders: Orders, operands: Sequence[ir.Value]
) -> ir.Value:
    order, enc = orders.results[0], marker.encoding
    assert order is not None
    stored = enc.with_shape(tuple(permuted(enc.shape, order)), tuple(permuted(enc.block, order)))
    if marker.kind == DEQUANTIZE:
        parts = dict(zip(marker.parts, operands, strict=True))
        dtype = dtype_of(marker.op.results[0])
        return dequantize(program, stored, parts, dtype, tensor=marker.tensor)
    parts = dict(zip(marker.parts, operands[1:], strict=True))
    made = quantize(program, operands[0], stored, parts, tensor=marker.tensor, own=marker.own)
    return made["codes"]
