"""What a loop starts with, and something else reads as well, is computed in front of the loop.

    %0 = f(%x);  %1 = while(%a = %0) {...};  g(%1, %0)
    ->
    %0 = optimization_barrier (f(%x));  %1 = while(%a = %0) {...};  g(%1, %0)

IREE 3.13 makes one dispatch of `f` and `g`, which the loop between them then waits for in a circle.
Where `g` does not wait for the loop nothing is done: in nested loops the runtime refuses a program
with such barriers when it is called ("indirect buffer reference slot 0 is out range").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    """Computed values that a loop starts with, and that are read together with what it gives."""
    if op.operation.name != "stablehlo.while":
        return []
    starts = [v for v in op.operation.operands if _is_computed(v) and len(set(users(v))) > 1]
    if not starts:
        return []
    waiting = _behind(op)
    return [v for v in starts if waiting & {u.operation for u in users(v)}]


def _behind(op: Op) -> set[Any]:
    """The ops that need a result of an op, at once or by others, also inside of their regions."""
    found: set[Any] = set()
    todo = [op.operation]
    while todo:
        readers = [u.operation for result in todo.pop().results for u in users(result)]
        for reader in readers:
            outer = reader
            while outer is not None and outer.name != "func.func":
                if outer not in found:
                    found.add(outer)
                    todo.append(outer)
                outer = outer.parent
    return found


def _is_computed(value: ir.Value) -> bool:
    made = maker(value)
    return made is not None and made.operation.name not in MADE
