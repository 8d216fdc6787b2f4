"""Numbers that kernels read inside a loop and outside of it are hidden from the compiler.

    %c = constant dense<0.5> : tensor<1xf32>
    call @jq_quantize_rows(%x, %c)            // and in a loop, too
    ->
    %b = optimization_barrier (constant dense<0.5> : tensor<1xf32>)
    call @jq_quantize_rows(%x, %b)

IREE 3.13 makes a constant of equal elements anew where it is used, and may put one that stands
between and behind loops nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from jq.ir import Program, at, ir
from jq.passes.base import Pass, PassContext
from jq.passes.target.widen_depthwise import barrier

LOOP = "stablehlo.while"


@dataclass(frozen=True)
class ShieldSplats(Pass):
    name = "shield-splats"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for uses in _read_by_kernels(program).values():
            if len({_in_loop(use.owner) for use in uses}) < 2:
                continue
            first = uses[0].owner.operation.operands[uses[0].operand_number].owner
            with at(program.body.operations[0]):
                shared = barrier(first.operation.clone().result)
            for use in uses:
                use.owner.operation.operands[use.operand_number] = shared
            changed = True
        return changed


def _read_by_kernels(program: Program) -> dict[Any, list[Any]]:
    """Uses of constants of equal elements by calls; equal constants are one."""
    found = defaultdict(list)
    for op in program.walk():
        if op.operation.name != "stablehlo.constant":
            continue
        value = op.operation.attributes["value"]
        if isinstance(value, ir.DenseElementsAttr) and value.is_splat:
            calls = [u for u in op.operation.results[0].uses if u.owner.name == "func.call"]
            found[value].extend(calls)
    return {value: uses for value, uses in found.items() if uses}


def _in_loop(op: Any) -> bool:
    parent = op.operation.parent
    while parent is not None and parent.name != "func.func":
        if parent.name == LOOP:
            return True
        parent = parent.parent
    return False
