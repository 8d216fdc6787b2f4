"""Encodings of all values of a program: the least solution of what the ops' rules say.

Forwards through the blocks in program order; what a loop carries starts as unknown and goes around
until nothing changes. That comes to an end: a carry that is found to be float, or in conflict,
stays so, and one encoding becomes no other (`jq.ir.ops.lattice`)."""

from collections.abc import Sequence

from jq.ir import Op, Program, ir, last_of, shape_of
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops.lattice import CONFLICT, FLOAT, UNKNOWN, Encoded, State, common, of_marker
from jq.ir.ops.lookup import rule_of
from jq.ir.values import BRANCHES, LOOP


class Encodings:
    """States of values; those of inputs, and of what no rule knows, are `FLOAT`."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._states: dict[ir.Value, State] = {}
        if any(match(op, DEQUANTIZE) for op in program.walk()):
            self._block(program.body)

    def of(self, value: ir.Value) -> State:
        return self._states.get(value, FLOAT)

    def _block(self, block: ir.Block) -> None:
        for op in block.operations:
            name = op.operation.name
            if name == LOOP:
                self._loop(op)
            elif name in BRANCHES:
                self._branches(op)
            elif len(op.results):
                self._states[op.results[0]] = self._state(op)

    def _state(self, op: Op) -> State:
        if marker := match(op, DEQUANTIZE):
            return of_marker(self.program, marker)
        states = [self.of(v) for v in op.operands]
        if all(s is FLOAT for s in states) or (rule := rule_of(op)) is None:
            return FLOAT
        return rule.encoded(self.program, op, states)

    def _loop(self, op: Op) -> None:
        starts = list(op.operands)
        carried: list[State] = [UNKNOWN] * len(starts)
        while True:
            for region in op.regions:
                block = region.blocks[0]
                self._states.update(zip(block.arguments, carried, strict=True))
                self._block(block)
            ends = last_of(op.regions[1].blocks[0]).operands
            found = [
                old if old in (FLOAT, CONFLICT) else self._ways(pair)
                for old, *pair in zip(carried, starts, ends, strict=True)
            ]
            if found == carried:
                break
            carried = found
        self._states.update(zip(op.results, carried, strict=True))

    def _branches(self, op: Op) -> None:
        blocks = [region.blocks[0] for region in op.regions]
        for block in blocks:
            self._block(block)
        ends = [last_of(block).operands for block in blocks]
        for i, result in enumerate(op.results):
            self._states[result] = self._ways([e[i] for e in ends])

    def _ways(self, values: Sequence[ir.Value]) -> State:
        """The encoding of a value that is one of several, with parameters that all of them know."""
        state = common(self.program, [(v, self.of(v)) for v in values], shape_of(values[0]))
        return FLOAT if isinstance(state, Encoded) and state.scale is None else state
