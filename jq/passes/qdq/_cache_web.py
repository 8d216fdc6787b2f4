"""Values that hold the rows of one cache, from loop to loop."""

from typing import Any

import numpy as np

from jq.ir import Op, Program, dtype_of, ir, shape_of
from jq.ir.values import maker

UPDATE, LOOP = "stablehlo.dynamic_update_slice", "stablehlo.while"
MOVES = ("stablehlo.dynamic_slice", "stablehlo.reshape", "stablehlo.broadcast_in_dim", UPDATE)


def cache_web(program: Program, index: int) -> set[Any] | None:
    """All values that hold the content of an input, when it is a cache."""
    start = program.body.arguments[index]
    if len(shape_of(start)) < 2 or dtype_of(start).kind not in "fV":
        return None
    web: set[Any] = set()
    pending, updated, returned = [start], False, False
    while pending:
        value = pending.pop()
        if value in web:
            continue
        web.add(value)
        for use in value.uses:
            op, name = use.owner, use.owner.operation.name
            returned |= name == "func.return"
            if name in MOVES and _keeps_rows(op, use.operand_number):
                updated |= name == UPDATE and use.operand_number == 0
                pending.append(op.results[0])
                if name == UPDATE:
                    pending += _carry_of(op.operands[0])
            elif name == LOOP:
                pending += _carry(op, use.operand_number)
            elif name == "stablehlo.return" and (loop := _loop_of(op)) is not None:
                pending += _carry(loop, use.operand_number)
    return web if updated and returned else None


def _keeps_rows(op: Op, operand: int) -> bool:
    """True if the op moves whole rows (indices of the last axis) of this operand."""
    op = op.operation
    before, after = shape_of(op.operands[operand]), shape_of(op.results[0])
    if operand > 1 or (operand == 1 and op.name != UPDATE) or before[-1:] != after[-1:]:
        return False
    if op.name == "stablehlo.broadcast_in_dim":
        dims = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
        ordered = dims == sorted(dims) and dims[-1] == len(after) - 1
        return ordered and np.prod(before) == np.prod(after)
    return True


def _loop_of(op: Op) -> Any | None:
    """The loop whose body an op ends."""
    owner = op.operation.block.owner
    name = owner.operation.name
    body = name == LOOP and owner.regions[1].blocks[0] == op.operation.block
    return owner if body else None


def _carry(loop: Op, index: int) -> list[Any]:
    """The values of one carry of a loop: its arguments and its result."""
    regions = loop.regions
    return [r.blocks[0].arguments[index] for r in regions] + [loop.results[index]]


def _carry_of(value: ir.Value) -> list[Any]:
    """The carry that a value is the argument of."""
    if maker(value) is not None or value.owner.owner.operation.name != LOOP:
        return []
    return _carry(value.owner.owner, ir.BlockArgument(value).arg_number)
