"""Blocks that came quantized stay in the artifact byte for byte.

    %codes = slice %w.blocks
    ->
    %b = optimization_barrier %w.blocks
    %codes = slice %b

Fires where plain arithmetic reads the raw blocks of a weight."""

from jq.ir import Program, barrier, context, ir
from jq.passes.iree_mends.mend import BARRIER, Mend


class KeepBlocks(Mend):
    """Values that are computed from constants are evaluated at compile time where they are no
    larger than those: GGUF blocks are stored as codes and scales.
    No trap: the compiler may do so: the artifact is not the one that was asked for, and is not
    wrong
    Until: a flag that keeps single constants as they are"""

    def left(self, program: Program) -> list[tuple[str, list[ir.OpOperand]]]:
        """Names of weights, and where arithmetic reads their blocks."""
        names = [n for n in program.encodings if f"{n}:blocks" in program.weights]
        read = ((name, program.weight(f"{name}:blocks").uses) for name in names)
        known = ("func.call", BARRIER)
        found = [(n, [u for u in uses if u.owner.operation.name not in known]) for n, uses in read]
        return [(name, uses) for name, uses in found if uses]

    def mend(self, program: Program, found: tuple[str, list[ir.OpOperand]]) -> None:
        name, uses = found
        with context(), ir.Location.name(name), ir.InsertionPoint.at_block_begin(program.body):
            kept = barrier(program.weight(f"{name}:blocks"))
        for use in uses:
            use.owner.operands[use.operand_number] = kept
