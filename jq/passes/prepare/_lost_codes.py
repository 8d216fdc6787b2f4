"""Weights that come quantized in a form that nobody recognised, by name.

Backwards from a float value that weights alone make: codes are integers of a weight (or 8-bit
floats) that become a float each, or indices of a small table. What positions and masks are made
from is none of it: comparisons are not followed, nor are what a gather's table is not.
"""

from __future__ import annotations

import math

from jq.ir import Program, dtype_of, ir, shape_of
from jq.ir.values import maker
from jq.passes.prepare._stored_parts import FLOATS
from jq.passes.prepare.fold_weights import Constant

LARGEST_TABLE = 256  # numbers that a code of 8 bits chooses from
GATHER = "stablehlo.gather"


def lost_codes(program: Program, value: ir.Value, constant: Constant) -> str | None:
    """The weight that holds the codes of a value; None where it is made from floats alone."""
    size, seen, waiting = math.prod(shape_of(value)), set[ir.Value](), [value]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if dtype_of(at).name not in FLOATS:
            if (name := _codes(program, at, constant, size)) is not None:
                return name
        elif (op := maker(at)) is not None:
            operands = list(op.operation.operands)
            looked_up = op.operation.name == GATHER
            if looked_up and math.prod(shape_of(operands[0])) <= LARGEST_TABLE:
                waiting.append(operands[1])
            waiting += operands[:1] if looked_up else operands
    return None


def _codes(program: Program, value: ir.Value, constant: Constant, size: int) -> str | None:
    """The weight that integers or 8-bit floats come from, where there is one for each number."""
    if dtype_of(value).kind == "b" or math.prod(shape_of(value)) < size:
        return None
    names = constant.weights(value) or set()
    return max(names, key=lambda n: (program.weights[n].nbytes, n), default=None)
