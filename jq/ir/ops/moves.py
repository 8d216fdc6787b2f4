"""Rules of ops that move numbers and compute none."""

from abc import abstractmethod
from collections.abc import Sequence

from jq.ir import Op, Program, ir, shape_of
from jq.ir.markers import Marker
from jq.ir.ops.base import Axes, OpRule
from jq.ir.ops.lattice import FLOAT, Encoded, State


class Sinking(OpRule):
    """An op that a dequantize in front of it can be moved after."""

    @abstractmethod
    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        """The op applied to the parts, then the dequantize; None where that cannot be.

        `marker` is that of the first operand.
        """


class Movement(Sinking):
    """An op that moves the elements of one tensor without changing them."""

    @abstractmethod
    def back(self, op: Op, axes: Axes) -> Axes:
        """The operand's axes that these axes of the result come from."""

    def elements(self, program: Program, op: Op) -> tuple[int, ...]:
        return (0,)

    def of_one_type(self, op: Op) -> tuple[int, ...]:
        return (0,)

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        if not isinstance(state := states[0], Encoded):
            return state
        if max(state.encoding.block, default=0) > 1:
            return FLOAT  # blocks of a stored weight move with it (`sink`)
        shape = shape_of(op.results[0])
        scaled = {a for a, n in enumerate(state.encoding.grid) if n > 1}
        return state.of_shape(
            shape, [a for a in range(len(shape)) if self.back(op, frozenset({a})) & scaled]
        )

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        return None if markers[0] is None else self.sink(program, op, markers[0])
