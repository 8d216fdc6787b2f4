"""What a reversal reads is computed first, where it comes from every second element.

    reverse (slice %x [0:7, 0:9:2])  ->  reverse (optimization_barrier (slice ...))
    slice (reverse %x) [0:7, 0:9:2]  ->  slice (optimization_barrier (reverse %x))

IREE 3.13 cannot compile the two as one loop nest, whatever lies between that it computes with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.ir import Op, Program, at, ir
from jq.ir.build import integers
from jq.passes.base import Pass, PassContext
from jq.passes.iree_mends.widen_depthwise import barrier


@dataclass(frozen=True)
class ShieldReversals(Pass):
    name = "shield-reversals"

    def run(self, program: Program, cx: PassContext) -> bool:
        kinds = {_kind(op) for op in program.walk_all()}
        if not {"reverse", "strided"} <= kinds:
            return False
        for op in [op for op in program.walk_all() if _kind(op) == "reverse"]:
            with at(op):
                op.operation.operands[0] = barrier(op.operation.operands[0])
            with at(op, after=True):
                result: ir.Value = op.operation.results[0]
                shielded = barrier(result)
            result.replace_all_uses_except(shielded, shielded.owner.operation)
        return True


def _kind(op: Op) -> str:
    name = op.operation.name.removeprefix("stablehlo.")
    if name == "slice":
        return "strided" if max(integers(op, "strides"), default=1) > 1 else "slice"
    return str(name)
