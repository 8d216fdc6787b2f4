"""What is written into a tensor, and is made from that tensor, is computed first.

    dynamic_update_slice %x, (slice (reverse %x)), 0
    ->
    dynamic_update_slice %x, (optimization_barrier (slice (reverse %x))), 0

IREE 3.13 writes into the tensor that it reads from: it fails where it knows that both places
overlap, and has wrong numbers where it does not. Which ops leave a tensor where it is, is for its
folds to say: a reversal of one element, `maximum(x, x)`, `1 * x` and two negations do. Whatever
shares an input with the tensor that is written into counts as made from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.ir import Program, at
from jq.ir.memory.origins import origins
from jq.passes.base import Pass, PassContext
from jq.passes.iree_mends.widen_depthwise import barrier

UPDATE = "stablehlo.dynamic_update_slice"


@dataclass(frozen=True)
class ShieldUpdates(Pass):
    name = "shield-updates"

    def run(self, program: Program, cx: PassContext) -> bool:
        known, changed = origins(program.body), False
        for op in program.walk():
            if op.operation.name != UPDATE:
                continue
            operand, update = op.operation.operands[0], op.operation.operands[1]
            if known[operand] & known[update]:
                with at(op):
                    op.operation.operands[1] = barrier(update)
                changed = True
        return changed
