"""Turns a `select_and_scatter` into slices and one scatter.

    select_and_scatter %x : [4, 6], %source : [2, 3]           // windows of 2 x 2
    ->
    %best, %place = the first of the window's elements; for each of the others
                    select (ge %best, %other), (%best, %place), (%other, its place)
    scatter (full %init : [4 * 6 + 1]), %place, %source

The gradient of a pool is one. Padding is never selected, and a window of padding alone gives to the
one element more, which is cut off again."""

from itertools import product
from math import prod

import numpy as np

from jq.base.errors import UserError
from jq.ir import OPS, Op, build, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.passes.iree_mends.mend import Mend
from jq.passes.iree_mends.scatters._scatter import scatter, take_body

# The element of each window that a `select_and_scatter` selects: all of a window are compared, one
# after the other, each a strided slice.


def places_of_selected(op: Op, operand: ir.Value, window: tuple[int, ...]) -> ir.Value:
    """The number of the element that each window selects; one beyond the last of padding alone."""
    low, high = zip(*build.padding_pairs(op, len(shape_of(operand))), strict=True)
    shape, result = shape_of(operand), shape_of(op.operands[1])
    strides = build.integers(op, "window_strides") or (1,) * len(shape)
    zero = build.constant_of(np.zeros((), dtype_of(operand)))
    padded = OPS.pad(operand, zero, low, high)
    number = OPS.constant(np.arange(prod(shape), dtype=np.int32).reshape(shape))
    outside = OPS.constant(np.array(prod(shape), np.int32))
    numbers = OPS.pad(number, outside, low, high)
    nowhere = OPS.broadcast(outside, result, [])
    best = place = None
    for first in product(*map(range, window)):
        last = [f + (n - 1) * s + 1 for f, n, s in zip(first, result, strides, strict=True)]
        value = build.strided_slice(padded, first, last, strides)
        here = build.strided_slice(numbers, first, last, strides)
        if best is None or place is None:
            best, place = value, here
            continue
        keeps = _mapped(op, best, value)
        empty = OPS.equal(place, nowhere)  # nothing but padding so far
        keeps = OPS.bit_and(keeps, OPS.equal(empty, OPS.constant(np.zeros(result, np.bool_))))
        keeps = OPS.bit_or(keeps, OPS.equal(here, nowhere))
        best, place = OPS.select(keeps, best, value), OPS.select(keeps, place, here)
    assert place is not None
    return place


def _mapped(op: Op, left: ir.Value, right: ir.Value) -> ir.Value:
    """True where the left one stays selected."""
    axes = build.i64_array(range(len(shape_of(left))))
    kind = tensor_type(shape_of(left), np.bool_)
    made = build.create("stablehlo.map", kind, left, right, regions=1, dimensions=axes)
    take_body(op, made.owner)
    return made


LARGEST = 1024  # elements of a window, each of them a slice


class PlainSelectAndScatter(Mend):
    """`select_and_scatter` is refused where windows overlap.
    Trap: traps/test_refused.py::test_select_and_scatter
    Report: iree-org/iree#10841"""

    def finds(self, op: Op) -> bool:
        return op.operation.name == "stablehlo.select_and_scatter"

    def rewritten(self, op: Op) -> list[ir.Value]:
        operand, source, init = op.operands
        shape, rank = shape_of(operand), len(shape_of(operand))
        if 0 in shape_of(source):
            return [stablehlo.broadcast_in_dim(operand.type, init, [])]
        window = build.integers(op, "window_dimensions") or (1,) * rank
        if prod(window) > LARGEST:
            what = f"select_and_scatter over windows of {prod(window)} elements"
            hint = f"windows of up to {LARGEST} elements are compiled"
            name = build.string_attr(op, build.NAME) or op.operation.name
            raise UserError(what, op=name, hint=hint)
        place = places_of_selected(op, operand, window)
        flat = OPS.reshape(place, (prod(shape_of(place)), 1))
        total = prod(shape)
        whole = ir.RankedTensorType.get([total + 1], operand.type.element_type)
        start = stablehlo.broadcast_in_dim(whole, init, [])
        summed = scatter(op, start, flat, OPS.reshape(source, (shape_of(flat)[0],)), [], region=1)
        return [OPS.reshape(OPS.slice(summed, [0], [total]), shape)]
