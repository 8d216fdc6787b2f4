"""Maximum, minimum and clamp compare quantized values; a constant bound is quantized first.

    maximum (dequantize %x), 0.0  ->  dequantize (maximum %x, zero point)

A bound between two codes has none: the numbers at it are rounded when they are quantized with the
parameters of the others (`Encoded.rounded`)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jq.formats.blocks import expand
from jq.ir import OPS, Op, Program, dtype_of, ir, shape_of
from jq.ir.markers import DEQUANTIZE, Marker, match
from jq.ir.ops.base import OpRule
from jq.ir.ops.lattice import CONFLICT, FLOAT, Encoded, State
from jq.ir.ops.movement import rebuilt
from jq.ir.ops.rules.selecting import Selecting, constant_codes
from jq.ir.ops.selection import splat_of


def bounded(state: State, bound: float, *, upper: bool) -> State:
    """The numbers of `state` up to a bound, or from it on."""
    if not isinstance(state, Encoded) or bound == 0:
        return state  # every tensor has a code of 0
    if state.limits is None or np.isnan(bound):
        return FLOAT
    low, high = state.limits
    if (bound >= high) if upper else (bound <= low):
        return state
    if (bound < low) if upper else (bound > high):
        return CONFLICT  # every number becomes the bound
    return state if state.holds(np.array(bound, np.float32)) else replace(state, rounded=True)


def with_bound(program: Program, marker: Marker, value: ir.Value, *, upper: bool) -> ir.Value:
    """The dequantize of codes up to that of a bound, or from it on."""
    codes, limit = marker.parts["codes"], _code(program, marker, value)
    codes = OPS.minimum(codes, limit) if upper else OPS.maximum(codes, limit)
    enc = marker.encoding
    return rebuilt(program, marker, enc.shape, enc.block, {**marker.parts, "codes": codes})


def _code(program: Program, marker: Marker, value: ir.Value) -> ir.Value:
    codes, enc = marker.parts["codes"], marker.encoding
    zero = marker.parts.get("zero_point")
    if splat_of(program, value) == 0 and zero is not None:
        return expand(OPS, OPS.convert(zero, dtype_of(codes)), enc)
    code = constant_codes(program, value, marker)
    assert code is not None  # `bounded` has looked at it
    return OPS.broadcast(OPS.reshape(code, []), enc.shape, []) if not shape_of(code) else code


class Extreme(Selecting):
    """The larger or smaller of two tensors, or of one and a bound."""

    upper, limits, typed = False, True, (0, 1)

    def elements(self, program: Program, op: Op) -> tuple[int, ...]:
        """None of a bound: it costs nothing where the range of codes ends."""
        return (0, 1) if self._bound(program, op) is None else ()

    def _bound(self, program: Program, op: Op) -> tuple[int, float] | None:
        """Number of the operand that is a bound, and the bound."""
        for i, value in enumerate(op.operands):
            if (bound := splat_of(program, value)) is not None:
                return i, bound
        return None

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        if (found := self._bound(program, op)) is None:
            return super().encoded(program, op, states)
        return bounded(states[1 - found[0]], found[1], upper=self.upper)

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        if (found := self._bound(program, op)) is None:
            return super().carry(program, op, markers)
        marker, bound = markers[1 - found[0]], op.operands[found[0]]
        return marker and with_bound(program, marker, bound, upper=self.upper)


class Maximum(Extreme):
    op = "maximum"


class Minimum(Extreme):
    op, upper = "minimum", True


class Clamp(OpRule):
    op, limits = "clamp", True

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        low, _, high = op.operands
        bounds = splat_of(program, low), splat_of(program, high)
        if bounds[0] is None or bounds[1] is None:
            return FLOAT
        return bounded(bounded(states[1], bounds[0], upper=False), bounds[1], upper=True)

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        if (marker := markers[1]) is None:
            return None
        low, _, high = op.operands
        inner = with_bound(program, marker, low, upper=False)
        limited = match(inner, DEQUANTIZE)
        return limited and with_bound(program, limited, high, upper=True)
