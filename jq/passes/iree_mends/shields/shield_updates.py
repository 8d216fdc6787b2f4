"""Computes first what is written into a tensor, and is made from that tensor.

    dynamic_update_slice %x, (slice (reverse %x)), 0
    ->
    dynamic_update_slice %x, (optimization_barrier (slice (reverse %x))), 0

IREE writes into the tensor that it reads from. Which ops leave a tensor where it is, is for its
folds to say: a reversal of one element, `maximum(x, x)`, `1 * x` and two negations do. Whatever
shares an input with the tensor that is written into counts as made from it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from jq.ir import Program
from jq.ir.memory.origins import origins
from jq.passes.iree_mends.mend import Read, Shield

UPDATE = "stablehlo.dynamic_update_slice"


@dataclass(frozen=True)
class ShieldUpdates(Shield):
    """A part of a tensor that is written to another place of the same tensor (a sliding window) is
    wrong, or refused when called, also after ops that IREE folds away (a reversal of one element,
    `maximum(x, x)`, `1 * x`).
    Trap: traps/test_programs.py::test_a_part_written_to_another_place
    Trap: traps/test_programs.py::test_a_part_written_to_another_place_behind_a_fold
    """

    name = "shield-updates"

    def values(self, program: Program) -> Iterable[Read]:
        known = origins(program.body)
        for op in program.walk():
            if op.operation.name == UPDATE:
                operand, update = list(op.operation.operands)[:2]
                if known[operand] & known[update]:
                    yield op, 1
