"""Short loops of integer arithmetic become their iterations, one after the other.

    while (%i < 5) { %a = xor (shift_left %a, %r), ...; ... }  ->  the ops of five iterations

JAX writes the rounds of its random generator as such loops. IREE waits before and after each
iteration of a loop, and of a loop of floats that has such loops inside (samplers that draw until
they accept) some are refused, or fail when they are called. Integers have no rounding that could
change.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jq.ir import Op, Program, dtype_of, walk
from jq.ir.ops.elementwise import POINTWISE
from jq.ir.stack import trip_count
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend
from jq.passes.prepare.loops import unroll

MOVES = {f"stablehlo.{kind}" for kind in ("constant", "slice", "reshape", "broadcast_in_dim")}
KINDS = POINTWISE | MOVES | {"stablehlo.return"}


@dataclass(frozen=True)
class UnrollRounds(Mend):
    """A loop of unknown length with loops of a few integer operations inside, as those of
    `jax.random`'s samplers, is refused ("maximum iteration count exceeded"), or refused when called
    ("indirect buffer reference slot 0").
    Trap: traps/test_programs.py::test_rounds_of_a_generator_in_a_loop_of_unknown_length
    """

    name = "unroll-rounds"
    limit: int = 8  # a loop that runs more often stays a loop
    ops: int = 512  # so does one whose iterations have more ops together

    def left(self, program: Program) -> Sequence[Op]:
        return [op for op in program.walk() if self._trips(program, op)]

    def run(self, program: Program, cx: PassContext) -> bool:
        loops = [op for op in program.walk() if op.operation.name == "stablehlo.while"]
        changed = False
        for loop in reversed(loops):  # innermost first
            if trips := self._trips(program, loop):
                unroll(loop, trips, numbered=False)
                changed = True
        return changed

    def _trips(self, program: Program, op: Op) -> int | None:
        """The number of times that a short loop runs; None for others."""
        if op.operation.name != "stablehlo.while":
            return None
        trips, body = trip_count(program, op), list(walk(op.regions[1].blocks[0]))
        short = trips is not None and trips <= self.limit and trips * len(body) <= self.ops
        return trips if short and all(map(_on_integers, body)) else None


def _on_integers(op: Op) -> bool:
    values = [*op.operands, *op.results]
    return op.operation.name in KINDS and all(dtype_of(v).kind in "iub" for v in values)
