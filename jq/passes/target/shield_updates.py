"""A part of a tensor that is written to another place of the same tensor is copied first.

    dynamic_update_slice %x, (slice %x [1:4]), 0
    ->
    dynamic_update_slice %x, (optimization_barrier (slice %x [1:4])), 0

IREE 3.13 writes into the tensor that it reads from: it fails where it knows that both places
overlap, and has wrong numbers where it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.ir import Op, Program, at, ir
from jq.ir.values import maker
from jq.passes.base import Pass, PassContext
from jq.passes.target.widen_depthwise import barrier

UPDATE = "stablehlo.dynamic_update_slice"
# What may be no more than another view of the same memory.
VIEWS = (
    *("stablehlo.slice", "stablehlo.dynamic_slice", "stablehlo.reshape", "stablehlo.transpose"),
    *("stablehlo.bitcast_convert", "stablehlo.broadcast_in_dim", UPDATE),
)


@dataclass(frozen=True)
class ShieldUpdates(Pass):
    name = "shield-updates"

    def run(self, program: Program, cx: PassContext) -> bool:
        found = [op for op in program.walk() if reads_what_it_writes(op)]
        for op in found:
            with at(op):
                op.operation.operands[1] = barrier(op.operation.operands[1])
        return bool(found)


def reads_what_it_writes(op: Op) -> bool:
    """Whether `op` writes a part of a tensor into that tensor."""
    if op.operation.name != UPDATE:
        return False
    operand, update = op.operation.operands[0], op.operation.operands[1]
    return maker(update, *VIEWS) is not None and _source(update) == _source(operand)


def _source(value: ir.Value) -> ir.Value:
    """What a value is a view of."""
    while (op := maker(value, *VIEWS)) is not None:
        value = op.operation.operands[0]
    return value
