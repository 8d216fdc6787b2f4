"""A product with ones that sums over nothing is its other operand.

    dot_general %x : [B, L, H, D], dense<1.0> : [H], batching_dims = [2] x [0]  ->  [H, B, L, D]
    ->
    transpose %x, dims = [2, 0, 1, 3]

Models write masks of heads so (`einsum("blhd,h->blhd", x, mask)`), and most have none.
"""

from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import replace
from jq.ir.constants import evaluate
from jq.ir.ops.dims import Dims
from jq.passes.base import Pass, PassContext

OPS = StableHloOps()


@dataclass(frozen=True)
class FoldOnes(Pass):
    name = "fold-ones"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            if (dims := Dims.match(op)) and not dims.contract:
                ones = [i for i in (0, 1) if _is_ones(program, op.operands[i])]
                if ones:
                    with at(op):
                        replace(op, [_other(op, ones[-1])])
                    changed = True
        if changed:
            program.drop_dead()
        return changed


def _is_ones(program: Program, value: ir.Value) -> bool:
    array = evaluate(program, value)
    return array is not None and bool((array == np.ones((), array.dtype)).all())


def _other(op: Op, ones: int) -> ir.Value:
    """The operand that is not ones, its axes where the product has them."""
    operands, result = op.operands, op.results[0]
    axes = Dims.of(op).result_axes(1 - ones, *(shape_of(v) for v in operands))
    order = sorted(axes, key=axes.__getitem__)
    x = OPS.transpose(operands[1 - ones], order)
    x = OPS.broadcast(x, shape_of(result), [axes[a] for a in order])
    return OPS.convert(x, dtype_of(result))
