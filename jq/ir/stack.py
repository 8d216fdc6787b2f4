"""Every value that a loop's body computes, stacked along a new leading axis outside of the loop.

    while(...) { %x = ...; return ... }
    ->
    %r:n+2 = while(..., %count = 0, %all = zeros[trips, ...]) {
      %x = ...; return ..., %count + 1, dynamic_update_slice(%all, %x, %count, ...)
    }

A branch that does not compute the value gives `none`. Of a loop that runs more than `LIMIT` times,
or nobody knows how often, the first `LIMIT - 1` values and the last are kept."""

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from jq.formats.blocks import full
from jq.ir.arrays import OPS
from jq.ir.build import direction_of
from jq.ir.constants import evaluate
from jq.ir.hoist import carried, outwards
from jq.ir.mlir_context import at
from jq.ir.program import Program
from jq.ir.types import dtype_of, shape_of
from jq.ir.values import Op, last_of, maker

LIMIT = 64


def stacked(program: Program, value: ir.Value, none: float = 0) -> ir.Value:
    """`value` as a value of the outermost block, one leading axis for each loop around it."""
    return outwards(
        value,
        program.body,
        lambda op, _, inner: _through_loop(program, op, inner, none),
        lambda v: full(OPS, none, shape_of(v), dtype_of(v)),
    )


def _through_loop(program: Program, op: Op, value: ir.Value, none: float) -> ir.Value:
    shape = shape_of(value)
    trips = min(trip_count(program, op) or LIMIT, LIMIT)
    with at(op):
        zero = OPS.constant(np.array(0, np.int32))
        buffer = full(OPS, none, (trips, *shape), dtype_of(value))
    counted = carried(op, zero, lambda count: OPS.add(count, 1))
    count = counted.regions[1].blocks[0].arguments[-1]

    def put(into: ir.Value) -> ir.Value:
        first = OPS.constant(np.array(0, np.int32))
        row = OPS.reshape(value, (1, *shape))
        return stablehlo.dynamic_update_slice(into, row, [count, *([first] * len(shape))])

    return carried(counted.opview, buffer, put).results[-1]


def trip_count(program: Program, op: Op) -> int | None:
    """Number of trips of `for (i = start; i < end; i += step)`, where all three are constants."""
    found = counter(program, op)
    return None if found is None else len(found[1])


def counter(program: Program, op: Op) -> tuple[int, range] | None:
    """The place of `i` among what such a loop carries, and its numbers."""
    cond, body = (region.blocks[0] for region in op.regions)
    test = maker(last_of(cond).operands[0], "stablehlo.compare")
    if test is None or direction_of(test) != "LT":
        return None
    count, end = test.operands
    if maker(count) is not None or count.owner != cond or dtype_of(count).kind not in "iu":
        return None
    index = ir.BlockArgument(count).arg_number
    add = maker(last_of(body).operands[index], "stablehlo.add")
    if add is None or add.operands[0] != body.arguments[index]:
        return None
    values = op.operands[index], end, add.operands[1]
    first, last, step = (_integer(program, v) for v in values)
    if first is None or last is None or not step or step < 0:
        return None
    return index, range(first, last, step)


def joined(body: ir.Block, place: int, index: int, numbers: range, times: int) -> ir.Value:
    """A value of the body; rows that its iterations put at the counter are put there at once."""
    given, count = (last_of(body).operands[i] for i in (place, index))
    whole, rows, places, ways = given, list[ir.Value](), list[ir.Value](), set[tuple[object, ...]]()
    kind = "stablehlo.dynamic_update_slice"
    while len(list(whole.uses)) == 1 and len(rows) < times and (update := maker(whole, kind)):
        whole, row, *places = update.operands
        count = count.owner.operands[0]  # in this iteration
        rows.append(row)
        ways.add((row.type, *(None if begin == count else begin for begin in places)))
    axes = [axis for axis, begin in enumerate(places) if begin == count]
    alone = whole == body.arguments[place] and len(list(whole.uses)) == 1 and len(ways) == 1
    if not alone or len(rows) != times or len(axes) != 1 or shape_of(rows[0])[axes[0]] != 1:
        return given
    if numbers.step != 1 or numbers.start < 0 or numbers.stop > shape_of(given)[axes[0]]:
        return given
    return stablehlo.dynamic_update_slice(whole, OPS.concatenate(rows[::-1], axes[0]), places)


def _integer(program: Program, value: ir.Value) -> int | None:
    number = evaluate(program, value)
    return None if number is None or number.shape else int(number)
