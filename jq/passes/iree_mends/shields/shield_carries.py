"""Keeps carried what a step of a loop does not read, and what it makes of nothing that it reads.

    while(%a = ..., %b = ...)  cond { return %a }  do { return f(%b), g(%b) }
    ->
    while(%a = ..., %b = ...)  cond { return %a }  do { return select(%always, f(%b), %a), g(%b) }

IREE moves the condition after the body, where it reads what the body has made. It then drops the
carries that no step needs, but not their last values. `%always` is true, behind a barrier.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Op, at, ir
from jq.ir.arrays import StableHloOps
from jq.ir.build import barrier, constant
from jq.ir.values import walk
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()


@dataclass(frozen=True)
class ShieldCarries(Mend):
    """A loop with a carry that no step reads, or that does not depend on any carry, crashes the
    compiler.
    Trap: traps/test_programs.py::test_a_carry_that_only_the_condition_reads
    """

    name = "shield-carries"

    def finds(self, op: Op) -> list[int]:
        """Carries that are needed after a step, but not in it or not made of any other."""
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

    def rewritten(self, op: Op) -> None:
        always = barrier(constant(np.array(True)))
        body = op.operation.regions[1].blocks[0]
        back = _last(body)
        for i in self.finds(op):
            with at(back):
                back.operands[i] = OPS.select(always, back.operands[i], body.arguments[i])


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
