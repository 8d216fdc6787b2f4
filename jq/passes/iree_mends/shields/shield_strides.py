"""What a window of one element steps over is computed first.

    reduce_window (abs %y), window = [1], stride = [2]
    ->
    reduce_window (optimization_barrier (abs %y)), window = [1], stride = [2]

IREE 3.13 makes one loop nest of the pool, or of a convolution, and of what else is computed from
%y, and runs it over the elements that the window meets: all others are zero for every reader.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.ir import Op, Program, at
from jq.ir.ops.lookup import rule_named
from jq.passes.base import Pass, PassContext
from jq.passes.iree_mends.widen_depthwise import barrier


@dataclass(frozen=True)
class ShieldStrides(Pass):
    name = "shield-strides"

    def run(self, program: Program, cx: PassContext) -> bool:
        found = [op for op in program.walk_all() if _steps_over(op)]
        for op in found:
            with at(op):
                for i in range(len(op.operation.operands) // 2):  # the others: filter or starts
                    op.operation.operands[i] = barrier(op.operation.operands[i])
        return bool(found)


def _steps_over(op: Op) -> bool:
    """Whether a window is of one element along an axis, and its next place is not beside it."""
    if (rule := rule_named(op.operation.name)) is None:
        return False
    found = rule.geometry(op)
    pairs = zip(found.window, found.stride, strict=True)
    return any(size == 1 and stride > 1 for size, stride in pairs)
