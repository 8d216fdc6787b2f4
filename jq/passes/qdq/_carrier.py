"""Operands that the model quantizes itself become dequantizes of the codes that are computed.

    pool (dequantize %q)   ->   dequantize (pool %q)         right after the pool

What the ops between make of codes is what their rules say (`OpRule.carry`); what a loop carries or
a branch gives is quantized again with the same parameters, which gives the codes that it had.
"""

from jq.ir import Op, Program, at, dtype_of, ir
from jq.ir.markers import DEQUANTIZE, dequantize, match, quantize
from jq.ir.ops.dataflow import Encodings
from jq.ir.ops.lattice import Encoded
from jq.ir.ops.lookup import rule_of
from jq.ir.values import maker
from jq.passes.integer._values import static_parameters


class Carrier:
    """Computes codes of values whose encoding is known, each once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.encodings = Encodings(program)
        self.known: dict[ir.Value, ir.Value | None] = {}

    def run(self, op: Op, index: int) -> bool:
        """Makes an operand of an op a dequantize; False where it is one, or cannot be."""
        value = op.operands[index]
        dequantized = self._dequantized(value)
        if dequantized is None or dequantized == value:
            return False
        op.operands[index] = dequantized
        return True

    def _dequantized(self, value: ir.Value) -> ir.Value | None:
        if match(value, DEQUANTIZE):
            return value
        if value not in self.known:
            state = self.encodings.of(value)
            self.known[value] = self._computed(value, state) if isinstance(state, Encoded) else None
        return self.known[value]

    def _computed(self, value: ir.Value, state: Encoded) -> ir.Value | None:
        op = maker(value)
        if op is None:
            with at(value.owner.operations[0]):
                return self._again(value, state)
        rule = rule_of(op)
        if rule is None:  # a loop or a branch
            with at(op, after=True):
                return self._again(value, state)
        floats = [self._dequantized(v) for v in op.operands]
        markers = [None if v is None else match(v, DEQUANTIZE) for v in floats]
        if all(m is None for m in markers):
            return None
        with at(op, after=True):
            return rule.carry(self.program, op, markers)

    def _again(self, value: ir.Value, state: Encoded) -> ir.Value | None:
        if state.scale is None:
            return None
        enc = state.encoding
        given = static_parameters(
            enc, state.scale, state.zero_point if enc.scheme == "asymmetric" else None
        )
        parts = quantize(self.program, value, enc, given, tensor="carried")
        return dequantize(self.program, enc, parts, dtype_of(value), tensor="carried")
