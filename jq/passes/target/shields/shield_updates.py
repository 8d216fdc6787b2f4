"""What is written into a tensor, and is made from that tensor, is computed first.

    dynamic_update_slice %x, (slice (reverse %x)), 0
    ->
    dynamic_update_slice %x, (optimization_barrier (slice (reverse %x))), 0

IREE 3.13 writes into the tensor that it reads from: it fails where it knows that both places
overlap, and has wrong numbers where it does not. Which ops leave a tensor where it is, is for its
folds to say: a reversal of one element, `maximum(x, x)`, `1 * x` and two negations do. Whatever
shares an input with the tensor that is written into counts as made from it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from jq.ir import Program, at, ir
from jq.passes.base import Pass, PassContext
from jq.passes.target.widen_depthwise import barrier

UPDATE = "stablehlo.dynamic_update_slice"
# What a value is made from: one bit for each argument of the blocks that it stands in.
Origins = defaultdict[ir.Value, int]
UNREAD = 1  # the bit of what is made from nothing, as an iota; constants have none


@dataclass(frozen=True)
class ShieldUpdates(Pass):
    name = "shield-updates"

    def run(self, program: Program, cx: PassContext) -> bool:
        known, changed = origins(program), False
        for op in program.walk():
            if op.operation.name != UPDATE:
                continue
            operand, update = op.operation.operands[0], op.operation.operands[1]
            if known[operand] & known[update]:
                with at(op):
                    op.operation.operands[1] = barrier(update)
                changed = True
        return changed


def origins(program: Program) -> Origins:
    """What each value of a program is made from."""
    known: Origins = defaultdict(int)
    _follow(program.body, known, [0] * len(program.body.arguments), 1)
    return known


def _follow(block: ir.Block, known: Origins, starts: list[int], first: int) -> int:
    """Fills `known` for all values of a block; gives back what any of its ops reads from outside.

    `starts` is what is known of the values that its arguments begin with, `first` the bit of the
    first of them. Outside of the block those bits are free again, so that they stay few.
    """
    for i, (value, start) in enumerate(zip(block.arguments, starts, strict=True)):
        known[value] = start | 1 << first + i
    read = 0
    for op in block.operations:
        mine = _read(op.operation, known, first + len(block.arguments))
        for result in op.operation.results:
            known[result] = mine
        read |= mine
    return read & (1 << first) - 1


def _read(op: ir.Operation, known: Origins, free: int) -> int:
    if op.name == "stablehlo.constant":
        return 0
    operands = [known[value] for value in op.operands]
    read = 0 if operands else UNREAD
    for origins in operands:
        read |= origins
    for region in op.regions:
        for block in region.blocks:
            same = len(block.arguments) == len(operands)  # a loop's carries
            read |= _follow(block, known, operands if same else [0] * len(block.arguments), free)
    return read
