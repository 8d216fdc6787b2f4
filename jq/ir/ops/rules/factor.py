"""Multiplication or division by a positive constant changes only the scale.

    multiply (dequantize %x, %s), 0.5  ->  dequantize %x, (multiply %s, 0.5)

The constant is one positive number for the tensor, or one per index of an axis. The product of
scale and factor is rounded once, as that of number and factor: results differ by a rounding."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jq.ir import OPS, Op, Program, evaluate, ir, shape_of
from jq.ir.affine import constant_of
from jq.ir.markers import Marker
from jq.ir.ops.base import OpRule
from jq.ir.ops.lattice import FLOAT, Encoded, State
from jq.ir.ops.movement import rebuilt


class Multiply(OpRule):
    op = "multiply"

    def factor(self, program: Program, op: Op) -> tuple[int, np.ndarray] | None:
        """Number of the multiplied operand, and by what: size 1 along axes that do not matter."""
        for i, value in enumerate(op.operands):
            if (found := constant_of(program, value)) is not None:
                return 1 - i, found.astype(np.float32)
        return None

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        if not any(isinstance(s, Encoded) for s in states):
            return FLOAT
        found = self.factor(program, op)
        if found is None or not ((found[1] > 2.0**-100) & (found[1] < 2.0**100)).all():
            return FLOAT
        index, factor = found
        if not isinstance(state := states[index], Encoded):
            return state
        if factor.size == 1:
            return state.times(float(factor.reshape(())))
        axes = [a for a, n in enumerate(factor.shape) if n > 1]
        if not state.whole or len(axes) > 1:
            return FLOAT
        scaled = state.of_shape(state.encoding.shape, axes)
        return replace(scaled, scale=None, origin=(op.results[0],))

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        found = self.factor(program, op)
        if found is None or (marker := markers[found[0]]) is None:
            return None
        factor, enc, parts = found[1], marker.encoding, dict(marker.parts)
        grid = enc.grid
        if factor.size > 1:  # every index of an axis gets a scale of its own
            grid = np.broadcast_shapes(grid, factor.shape)
            enc = enc.with_shape(enc.shape, tuple(int(n > 1) for n in grid))
            for name in parts.keys() - {"codes"}:
                part = OPS.reshape(parts[name], [1] * len(grid))
                parts[name] = OPS.broadcast(part, grid, range(len(grid)))
        parts["scale"] = _times(program, marker.parts["scale"], parts["scale"], factor)
        return rebuilt(program, marker, enc.shape, enc.block, parts)


def _times(program: Program, one: ir.Value, scales: ir.Value, factor: np.ndarray) -> ir.Value:
    """Scales (`one`, or it in another shape) times a factor: a constant where both are known."""
    known = evaluate(program, one)
    if known is not None and known.size == 1:
        product = known.reshape(()) * factor
        return OPS.constant(np.asarray(product.reshape(shape_of(scales)), np.float32))
    by = OPS.constant(factor if factor.size > 1 else factor.reshape(()))
    return OPS.mul(scales, OPS.broadcast(by, shape_of(scales), range(len(shape_of(by)))))


class Divide(Multiply):
    op = "divide"

    def factor(self, program: Program, op: Op) -> tuple[int, np.ndarray] | None:
        by = constant_of(program, op.operands[1])
        return None if by is None or not by.all() else (0, np.float32(1) / by.astype(np.float32))


class Add(OpRule):
    """Addition and subtraction, whose operands may be rounded to the type of the sum."""

    op, sums = "add", True


class Subtract(Add):
    op = "subtract"
