"""A dequantize moves down through ops that only move elements, to the op that computes.

    transpose(dequantize(codes, scale)) -> dequantize(transpose(codes), transpose(scale))

Fires for every op with a `Sinking` rule, inside loop bodies too; not where a format's
stored blocks would be cut.
"""

from dataclasses import dataclass

from jq.ir import Program, at
from jq.ir.build import replace
from jq.ir.markers import DEQUANTIZE, marker_kind, match
from jq.ir.ops.lookup import rule_of
from jq.ir.ops.moves import Sinking
from jq.passes.base import Pass, PassContext


@dataclass(frozen=True)
class SinkDequantize(Pass):
    name = "sink-dequantize"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():  # program order: a chain sinks in one sweep
            rule = rule_of(op)
            if not isinstance(rule, Sinking):
                continue
            marker = match(op.operands[0], DEQUANTIZE)
            if marker is None:
                continue
            with at(op):
                value = rule.sink(program, op, marker)
            if value is not None:
                replace(op, [value])
                changed = True
        erase_dead(program)
        return changed


def erase_dead(program: Program) -> None:
    """Erases markers that nobody reads (an op without users, from the end backwards)."""
    for op in reversed(list(program.walk())):
        if marker_kind(op) and not any(True for r in op.operation.results for _ in r.uses):
            op.operation.erase()
