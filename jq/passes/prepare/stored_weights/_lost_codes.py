"""Weights that come quantized in a form that nobody recognised, by name.

Backwards from a float value that weights alone make: codes are integers of a weight (or 8-bit
floats) that become a float each, or indices of a table with fewer numbers than are looked up, be it
by `gather` or by one-hot rows (compared with all indices). What positions and masks are made
from is none of it: no other comparisons are followed, nor what picks from larger tables.
"""

import math

from jq.ir import Program, dtype_of, ir, shape_of
from jq.ir.ops.lookup import rule_of
from jq.ir.ops.moves import Movement
from jq.ir.values import maker
from jq.passes.prepare.fold_weights import Constant
from jq.passes.prepare.stored_weights import FLOATS

GATHER, COMPARE = "stablehlo.gather", "stablehlo.compare"
BROADCAST = "stablehlo.broadcast_in_dim"


def lost_codes(program: Program, value: ir.Value, constant: Constant) -> str | None:
    """The weight that holds the codes of a value; None where it is made from floats alone."""
    seen, waiting = set[ir.Value](), [(value, math.prod(shape_of(value)))]
    while waiting:
        at, size = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if _one_hot(at):
            waiting += [(_spread(v), size) for v in at.owner.operation.operands]
        elif dtype_of(at).name not in FLOATS:
            if (name := _codes(program, at, constant, size)) is not None:
                return name
        elif (op := maker(at)) is not None:
            operands = list(op.operation.operands)
            looked_up = op.operation.name == GATHER
            if looked_up and math.prod(shape_of(operands[0])) < size:
                index = math.prod(shape_of(operands[1]))
                width = math.prod(shape_of(at)) // max(index, 1)  # numbers of one index
                waiting.append((operands[1], size // max(width, 1)))
            waiting += [(v, size) for v in (operands[:1] if looked_up else operands)]
    return None


def _one_hot(value: ir.Value) -> bool:
    """True if it says for which index each integer is equal."""
    op = maker(value, COMPARE)
    if op is None or "EQ" not in str(op.operation.attributes["comparison_direction"]):
        return False
    kinds = [maker(_spread(v)) for v in op.operation.operands]
    return any(kind is not None and kind.operation.name == "stablehlo.iota" for kind in kinds)


def _spread(value: ir.Value) -> ir.Value:
    """The value that is repeated, or only moved."""
    while (op := maker(unmoved(value))) is not None and op.operation.name == BROADCAST:
        value = op.operation.operands[0]
    return unmoved(value)


def unmoved(value: ir.Value) -> ir.Value:
    """The value in front of ops that only move elements."""
    while (op := maker(value)) is not None and isinstance(rule_of(op), Movement):
        value = op.operation.operands[0]
    return value


def _codes(program: Program, value: ir.Value, constant: Constant, size: int) -> str | None:
    """The weight that integers or 8-bit floats come from, where there is one for each number."""
    if dtype_of(value).kind == "b" or math.prod(shape_of(value)) < size:
        return None
    names = constant.weights(value) or set()
    return max(names, key=lambda n: (program.weights[n].nbytes, n), default=None)
