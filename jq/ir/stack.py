"""Every value that a loop's body computes, stacked along a new leading axis outside of the loop.

    while(...) { %x = ...; return ... }
    ->
    %r:n+2 = while(..., %count = 0, %all = zeros[trips, ...]) {
      %x = ...; return ..., %count + 1, dynamic_update_slice(%all, %x, %count, ...)
    }

A branch that does not compute the value gives zeros. Of a loop that runs more than `LIMIT`
times, or nobody knows how often, the first `LIMIT - 1` values and the last are kept.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from jq.base.errors import InternalError
from jq.formats.blocks import full
from jq.ir.arrays import OPS
from jq.ir.build import direction_of
from jq.ir.constants import evaluate
from jq.ir.hoist import anchored, block_of, carried, through_branch
from jq.ir.mlir_context import at
from jq.ir.program import Program
from jq.ir.types import dtype_of, shape_of
from jq.ir.values import Op, last_of, maker

LIMIT = 64


def stacked(program: Program, value: ir.Value) -> ir.Value:
    """`value` as a value of the outermost block, one leading axis for each loop around it."""
    start = value
    while (block := block_of(value)) != program.body:
        parent: Any = block.owner
        name = parent.operation.name
        if name == "stablehlo.while":
            value = _through_loop(program, parent.opview, value)
        elif name in ("stablehlo.case", "stablehlo.if"):
            value = through_branch(parent.opview, block, value, _zeros_like(value))
        else:
            raise InternalError(f"a value cannot leave a {name}")
    return value if value is start else anchored(value)


def _zeros_like(x: ir.Value) -> Callable[[], ir.Value]:
    shape, dtype = shape_of(x), dtype_of(x)
    return lambda: full(OPS, 0, shape, dtype)


def _through_loop(program: Program, op: Op, value: ir.Value) -> ir.Value:
    shape = shape_of(value)
    trips = min(trip_count(program, op) or LIMIT, LIMIT)
    with at(op):
        zero = OPS.constant(np.array(0, np.int32))
        buffer = full(OPS, 0, (trips, *shape), dtype_of(value))
    counted = carried(op, zero, lambda count: OPS.add(count, OPS.constant(np.array(1, np.int32))))
    arguments = counted.regions[1].blocks[0].arguments
    count = arguments[len(arguments) - 1]

    def put(into: ir.Value) -> ir.Value:
        first = OPS.constant(np.array(0, np.int32))
        row = OPS.reshape(value, (1, *shape))
        return stablehlo.dynamic_update_slice(into, row, [count, *([first] * len(shape))])

    new = carried(counted.opview, buffer, put)
    return new.results[len(new.results) - 1]


def trip_count(program: Program, op: Op) -> int | None:
    """Number of trips of `for (i = start; i < end; i += step)`, where all three are constants."""
    cond, body = (region.blocks[0] for region in op.regions)
    test = _owner(last_of(cond).operands[0], "stablehlo.compare")
    if test is None or direction_of(test) != "LT":
        return None
    counter, end = test.operands
    if maker(counter) is not None or counter.owner != cond:
        return None
    index = ir.BlockArgument(counter).arg_number
    add = _owner(last_of(body).operands[index], "stablehlo.add")
    if add is None or add.operands[0] != body.arguments[index]:
        return None
    values = op.operands[index], end, add.operands[1]
    first, last, step = (_integer(program, v) for v in values)
    if first is None or last is None or not step or step < 0:
        return None
    return max(0, -(-(last - first) // step))


def _integer(program: Program, value: ir.Value) -> int | None:
    number = evaluate(program, value)
    return None if number is None or number.shape else int(number)


def _owner(value: ir.Value, kind: str) -> Any:
    """The op of that kind which computes `value`, or None."""
    op = maker(value, kind)
    return op and op.operation
