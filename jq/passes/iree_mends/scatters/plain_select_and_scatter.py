"""Turns a `select_and_scatter` into slices and one scatter.

    select_and_scatter %x : [4, 6], %source : [2, 3]           // windows of 2 x 2
    ->
    %best, %place = the first of the window's elements; for each of the others
                    select (ge %best, %other), (%best, %place), (%other, its place)
    scatter (full %init : [4 * 6 + 1]), %place, %source

The gradient of a pool is one. Padding is never selected, and a window of padding alone gives to the
one element more, which is cut off again.
"""

from dataclasses import dataclass
from math import prod

from jq.base.errors import UserError
from jq.ir import Op, ir, shape_of, stablehlo
from jq.ir.arrays import StableHloOps
from jq.ir.build import NAME, integers, string_attr
from jq.passes.iree_mends.mend import Mend
from jq.passes.iree_mends.scatters._selected import places_of_selected, take_region

OPS = StableHloOps()
LARGEST = 1024  # elements of a window, each of them a slice


@dataclass(frozen=True)
class PlainSelectAndScatter(Mend):
    """`select_and_scatter` is refused where windows overlap.
    Trap: traps/test_refused.py::test_select_and_scatter
    Report: iree-org/iree#10841
    """

    name = "plain-select-and-scatter"

    def finds(self, op: Op) -> bool:
        return op.operation.name == "stablehlo.select_and_scatter"

    def rewritten(self, op: Op) -> list[ir.Value]:
        return [_lowered(op)]


def _lowered(op: Op) -> ir.Value:
    operand, source, init = op.operation.operands
    shape, rank = shape_of(operand), len(shape_of(operand))
    if 0 in shape_of(source):
        return stablehlo.broadcast_in_dim(operand.type, init, [])
    window = integers(op, "window_dimensions") or (1,) * rank
    if prod(window) > LARGEST:
        raise UserError(
            f"select_and_scatter over windows of {prod(window)} elements",
            op=string_attr(op, NAME) or op.operation.name,
            hint=f"windows of up to {LARGEST} elements are compiled",
        )
    place = places_of_selected(op, operand, window)
    flat = OPS.reshape(place, (prod(shape_of(place)), 1))
    total = prod(shape)
    whole = ir.RankedTensorType.get([total + 1], operand.type.element_type)
    start = stablehlo.broadcast_in_dim(whole, init, [])
    summed = _scatter(op, start, flat, OPS.reshape(source, (shape_of(flat)[0],)))
    return OPS.reshape(OPS.slice(summed, [0], [total]), shape)


def _scatter(op: Op, start: ir.Value, places: ir.Value, source: ir.Value) -> ir.Value:
    dims = stablehlo.ScatterDimensionNumbers.get(
        update_window_dims=[],
        inserted_window_dims=[0],
        input_batching_dims=[],
        scatter_indices_batching_dims=[],
        scattered_dims_to_operand_dims=[0],
        index_vector_dim=1,
    )
    made = ir.Operation.create(
        "stablehlo.scatter",
        results=[start.type],
        operands=[start, places, source],
        attributes={"scatter_dimension_numbers": dims},
        regions=1,
    )
    take_region(op, 1, made)
    return made.result
