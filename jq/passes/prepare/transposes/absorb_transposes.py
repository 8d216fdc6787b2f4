"""A transpose in front of a dot_general becomes other dimension numbers.

    dot_general %x, (transpose %w, [1, 0]), contracting [1] x [0]
    ->
    dot_general %x, %w, contracting [1] x [1]

Fires where the order of the free axes stays as it is, since that order is the result's.
"""

from dataclasses import dataclass

from jq.ir import Op, Program, context
from jq.ir.build import integers
from jq.ir.ops.dims import Dims
from jq.ir.values import maker
from jq.passes.base import Pass, PassContext


@dataclass(frozen=True)
class AbsorbTransposes(Pass):
    name = "absorb-transposes"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            if Dims.match(op):
                for side in (0, 1):
                    while _absorb(op, side):  # each of several
                        changed = True
        if changed:
            program.drop_dead()
        return changed


def _absorb(op: Op, side: int) -> bool:
    owner = maker(op.operands[side], "stablehlo.transpose")
    if owner is None:
        return False
    order = integers(owner, "permutation")  # axis i of the result is axis order[i] of the source
    dims, rank = Dims.of(op), len(order)
    before = dims.free(side, rank)
    moved = dims.map_side(side, order)
    if moved.free(side, rank) != [order[a] for a in before]:
        return False
    source = owner.operands[0]
    with context():
        op.attributes["dot_dimension_numbers"] = moved.attribute()
    op.operands[side] = source
    return True
