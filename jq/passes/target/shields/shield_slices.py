"""What a gather reads of every pixel's channels is copied first.

    gather (reshape (slice %x [0:9, 0:10, 0:1])), %i   // %x : [9, 10, 2]
    ->
    gather (optimization_barrier (reshape (slice ...))), %i

IREE 3.13 reads through the slice, and fails on elements that do not lie side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.ir import Op, Program, at, shape_of
from jq.ir.values import maker
from jq.passes.base import Pass, PassContext
from jq.passes.target.widen_depthwise import barrier


@dataclass(frozen=True)
class ShieldSlices(Pass):
    name = "shield-slices"

    def run(self, program: Program, cx: PassContext) -> bool:
        found = [op for op in program.walk() if reads_channels(op)]
        for op in found:
            with at(op):
                op.operation.operands[0] = barrier(op.operation.operands[0])
        return bool(found)


def reads_channels(op: Op) -> bool:
    """Whether `op` gathers from a slice along the last of three axes or more."""
    if op.operation.name != "stablehlo.gather":
        return False
    value = op.operation.operands[0]
    while maker(value) is not None:
        name, before = value.owner.operation.name, value.owner.operation.operands
        if name == "stablehlo.slice":
            whole = shape_of(before[0])
            return len(whole) > 2 and shape_of(value)[-1] < whole[-1]
        if name != "stablehlo.reshape":
            return False
        value = before[0]
    return False
