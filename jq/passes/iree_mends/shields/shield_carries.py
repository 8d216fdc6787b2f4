"""What a step of a loop does not read, and what it makes of nothing that it reads, stays carried.

    while(%a = ..., %b = ...)  cond { return %a }  do { return f(%b), g(%b) }
    ->
    while(%a = ..., %b = ...)  cond { return %a }  do { return select(%always, f(%b), %a), g(%b) }

IREE 3.13 moves the condition after the body, where it reads what the body has made. It then drops
the carries that no step needs, but not their last values, loses count, and crashes. `%always` is
true, behind a barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Op, Program, at, ir
from jq.ir.arrays import StableHloOps
from jq.ir.build import constant
from jq.ir.values import walk
from jq.passes.base import Pass, PassContext
from jq.passes.iree_mends.widen_depthwise import barrier

OPS = StableHloOps()


@dataclass(frozen=True)
class ShieldCarries(Pass):
    name = "shield-carries"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            if not (lost := lost_carries(op)):
                continue
            with at(op):
                always = barrier(constant(np.array(True)))
            body = op.operation.regions[1].blocks[0]
            back = _last(body)
            for i in lost:
                with at(back):
                    back.operands[i] = OPS.select(always, back.operands[i], body.arguments[i])
            changed = True
        return changed


def lost_carries(op: Op) -> list[int]:
    """Carries of a loop that are needed after a step, but not in it or not made of any other."""
    if op.operation.name != "stablehlo.while":
        return []
    condition, body = (region.blocks[0] for region in op.operation.regions)
    made_of = _made_of(body)
    carries = range(len(made_of))
    needed = {i for i in carries if _is_read(op.operation.results[i])}
    asked = {i for i in carries if _is_read(condition.arguments[i])}
    read: set[int] = set()
    while more := {j for i in needed | asked | read for j in made_of[i]} - read:
        read |= more
    return [i for i in sorted(needed | asked | read) if not made_of[i] or i in needed - read]


def _made_of(body: ir.Block) -> list[set[int]]:
    """For each value that a step of a loop gives, the carries that it is computed from."""
    sources: dict[ir.Value, set[int]] = {v: {i} for i, v in enumerate(body.arguments)}
    for op in body.operations:
        inner = [o for region in op.regions for block in region.blocks for o in walk(block)]
        operands = [v for o in (op, *inner) for v in o.operands if v in sources]
        found = set().union(*(sources[v] for v in operands))
        sources.update((result, found) for result in op.results)
    return [sources.get(v, set()) for v in _last(body).operands]


def _last(block: ir.Block) -> Any:
    return block.operations[len(block.operations) - 1].operation


def _is_read(value: ir.Value) -> bool:
    return any(True for _ in value.uses)
