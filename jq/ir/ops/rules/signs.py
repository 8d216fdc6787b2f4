"""Negation and abs on codes, if every code has one for its negative.

    negate (dequantize %x, %s)                 ->  dequantize (negate %x), %s
    negate (dequantize %x, %s, %zero)          ->  dequantize (ends - %x), %s, (ends - %zero)

`ends` is the smallest code plus the largest: -1 for int8, so that no code falls outside. Symmetric
codes that use -128 have no code for its negative."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jq.formats import affine_format
from jq.ir import OPS, Op, Program, dtype_of, evaluate, ir
from jq.ir.markers import Marker
from jq.ir.ops.base import OpRule
from jq.ir.ops.lattice import FLOAT, Encoded, State
from jq.ir.ops.movement import of_codes, rebuilt


class Sign(OpRule):
    typed, around_zero = (0,), True


class Negate(Sign):
    op = "negate"

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        state = states[0]
        if not isinstance(state, Encoded) or (ends := _ends(state)) == 0:
            return state
        if state.encoding.scheme == "symmetric":
            return FLOAT
        if state.scale is None:
            return replace(state, origin=(op.results[0],))
        return replace(state, zero_point=ends - state.zero_point)

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        if (marker := markers[0]) is None:
            return None
        enc, parts = marker.encoding, dict(marker.parts)
        ends = sum(affine_format(enc.format).limits(enc))
        counts = {"codes": 1, "zero_point": 1, "sum": math.prod(enc.shape) // math.prod(enc.grid)}
        for name in parts.keys() & counts.keys():
            parts[name] = _mirrored(program, parts[name], ends * counts[name])
        return rebuilt(program, marker, enc.shape, enc.block, parts)


class Abs(Sign):
    op = "abs"

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        state = states[0]
        if not isinstance(state, Encoded):
            return state
        even = state.encoding.scheme == "symmetric" and _ends(state) == 0
        return state if even else FLOAT

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        if (marker := markers[0]) is None:
            return None
        return of_codes(program, marker, OPS.abs(marker.parts["codes"]))


def _ends(state: Encoded) -> int:
    """The smallest code plus the largest."""
    return sum(affine_format(state.encoding.format).limits(state.encoding))


def _mirrored(program: Program, part: ir.Value, ends: int) -> ir.Value:
    """`ends` minus the part, whose type holds the result; a constant where it is one."""
    known = evaluate(program, part)
    if known is not None and known.size == 1:
        return OPS.constant(np.asarray(ends - known, dtype_of(part)))
    return OPS.sub(ends, part)
