"""What a loop starts with, and something else reads as well, is computed in front of the loop.

    %0 = f(%x);  %1 = while(%a = %0) {...};  g(%1, %0)
    ->
    %0 = optimization_barrier (f(%x));  %1 = while(%a = %0) {...};  g(%1, %0)

IREE 3.13 makes one dispatch of `f` and `g`, which the loop between them then waits for in a circle.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.ir import Op, Program, at, ir
from jq.ir.values import maker, users
from jq.passes.base import Pass, PassContext
from jq.passes.target.widen_depthwise import barrier

MADE = ("stablehlo.constant", "stablehlo.optimization_barrier")


@dataclass(frozen=True)
class ShieldStarts(Pass):
    name = "shield-starts"

    def run(self, program: Program, cx: PassContext) -> bool:
        found = dict.fromkeys(v for op in program.walk() for v in shared_starts(op))
        for value in found:
            with at(value.owner, after=True):
                shielded = barrier(value)
            value.replace_all_uses_except(shielded, shielded.owner.operation)
        return bool(found)


def shared_starts(op: Op) -> list[ir.Value]:
    """Computed values that a loop starts with, and that are read by more than the loop."""
    if op.operation.name != "stablehlo.while":
        return []
    return [v for v in op.operation.operands if _is_computed(v) and len(set(users(v))) > 1]


def _is_computed(value: ir.Value) -> bool:
    made = maker(value)
    return made is not None and made.operation.name not in MADE
