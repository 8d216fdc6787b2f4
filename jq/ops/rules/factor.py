"""A multiplication or division by a constant changes the scale alone.

    multiply (dequantize %x, %s), 0.5  ->  dequantize %x, (multiply %s, 0.5)

The constant is one positive number for the whole tensor. The product of a scale and a factor is
rounded once, as that of a number and the factor is: results differ by a rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jq.ir import Op, Program, ir, shape_of
from jq.ir.constants import evaluate
from jq.ir.markers import Marker
from jq.ops.base import OpRule
from jq.ops.encoded import FLOAT, Encoded, State
from jq.ops.integer import OPS
from jq.ops.movement import rebuilt
from jq.ops.selection import splat_of


class Multiply(OpRule):
    op = "multiply"

    def factor(self, program: Program, op: Op) -> tuple[int, float] | None:
        """Number of the operand that is multiplied, and by what."""
        for i, value in enumerate(op.operation.operands):
            if (found := splat_of(program, value)) is not None:
                return 1 - i, found
        return None

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        if not any(isinstance(s, Encoded) for s in states):
            return FLOAT
        found = self.factor(program, op)
        if found is None or not _usable(found[1]):
            return FLOAT
        state = states[found[0]]
        return state.times(found[1]) if isinstance(state, Encoded) else state

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        found = self.factor(program, op)
        if found is None or (marker := markers[found[0]]) is None:
            return None
        scale, by = marker.parts["scale"], np.array(found[1], np.float32)
        known = evaluate(program, scale)
        if known is not None and known.size == 1:
            scale = OPS.constant(known * by)
        else:
            scale = OPS.mul(scale, OPS.broadcast(OPS.constant(by), shape_of(scale), []))
        enc = marker.encoding
        return rebuilt(program, marker, enc.shape, enc.block, {**marker.parts, "scale": scale})


class Divide(Multiply):
    op = "divide"

    def factor(self, program: Program, op: Op) -> tuple[int, float] | None:
        by = splat_of(program, op.operation.operands[1])
        return (0, float(np.float32(1) / np.float32(by))) if by else None


def _usable(factor: float) -> bool:
    """A scale is a normal positive number."""
    return bool(2.0**-100 < factor < 2.0**100)
