"""Blocks that came quantized stay in the artifact byte for byte.

    %codes = slice %w.blocks
    ->
    %b = optimization_barrier %w.blocks
    %codes = slice %b

Fires where plain arithmetic reads the raw blocks of a weight: a compiler evaluates the unpacking
when its result is no larger than the blocks, and stores codes and scales in their stead.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.ir import Program, context, ir, stablehlo
from jq.passes.base import Pass, PassContext


@dataclass(frozen=True)
class KeepBlocks(Pass):
    name = "keep-blocks"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for name in program.encodings:
            if f"{name}:blocks" not in program.weights:
                continue
            value = program.weight(f"{name}:blocks")
            uses = [u for u in value.uses if u.owner.operation.name != "func.call"]
            if not uses:
                continue
            with context(), ir.Location.name(name), ir.InsertionPoint.at_block_begin(program.body):
                kept = stablehlo.optimization_barrier([value])
            for use in uses:
                use.owner.operation.operands[use.operand_number] = kept
            changed = True
        return changed
