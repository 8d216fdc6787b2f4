"""Sorting: codes with one scale have the order of their numbers, and are sorted instead.

    sort (dequantize %x)   ->  dequantize (sort %x)
    top_k (dequantize %x)  ->  dequantize (slice (sort %x))

Those are the values of top_k; its indices stay as they are. NaN has no code of its own."""

from collections.abc import Sequence

from jq.ir import Op, Program, ir, is_read, shape_of
from jq.ir.build import integer
from jq.ir.markers import Marker
from jq.ir.ops.base import OpRule
from jq.ir.ops.lattice import FLOAT, Encoded, State
from jq.ir.ops.movement import of_codes
from jq.ir.ops.selection import direction, in_order


class Sort(OpRule):
    op = "sort"

    def applies(self, op: Op) -> bool:
        return len(op.operands) == 1 and direction(op) is not None

    def axis(self, op: Op) -> int:
        return integer(op, "dimension")

    def elements(self, program: Program, op: Op) -> tuple[int, ...]:
        return (0,) if self.applies(op) else ()

    def of_one_type(self, op: Op) -> tuple[int, ...]:
        return tuple(range(len(op.operands)))

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        state = states[0]
        if not isinstance(state, Encoded):
            return state
        alike = max(state.encoding.block, default=0) <= 1
        alike = alike and state.encoding.grid[self.axis(op)] == 1
        return self.ordered(op, state) if alike else FLOAT

    def ordered(self, op: Op, state: Encoded) -> State:
        return state

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        if (marker := markers[0]) is None or not self.applies(op):
            return None
        return of_codes(program, marker, in_order(op, marker.parts["codes"]))


class TopK(Sort):
    """The largest of the last axis, in falling order."""

    op = "chlo.top_k"

    def applies(self, op: Op) -> bool:
        return True

    def elements(self, program: Program, op: Op) -> tuple[int, ...]:
        return () if is_read(op.results[1]) else (0,)  # a place is found among floats

    def of_one_type(self, op: Op) -> tuple[int, ...]:
        return ()  # it is written as a sort and a slice

    def axis(self, op: Op) -> int:
        return len(shape_of(op.operands[0])) - 1

    def ordered(self, op: Op, state: Encoded) -> State:
        shape = shape_of(op.results[0])
        return state.of_shape(shape, [a for a, n in enumerate(state.encoding.grid) if n > 1])
