"""Rows from a position on that is found at run time are gathered.

    dynamic_slice %table, %position, 0, sizes = [4, 128]
    ->
    gather %table, clamp(0, %position, n - 4) + [0, 1, 2, 3]

Fires on inputs and weights, and on single rows of anything, outside of loops and branches.
"""

from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program, at, ir, shape_of, stablehlo
from jq.ir.build import replace
from jq.ir.values import maker
from jq.passes._position import SLICE, along, held
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend
from jq.passes.kernels._kernel import OPS


@dataclass(frozen=True)
class GatherSlices(Mend):
    """Slow: where a slice lies at a position that is found at run time, the host waits for it, and
    records every command of the call anew.
    No trap: slow, not wrong
    """

    name = "gather-slices"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in list(program.main.entry_block.operations):
            axis = along(program, op) if op.operation.name == SLICE else None
            if axis is None:
                continue
            count = shape_of(op.results[0])[axis]
            if maker(op.operands[0]) is None or count == 1:
                with at(op):
                    replace(op, [_gathered(op, axis, count)])
                changed = True
        return changed


def _gathered(op: Op, axis: int, count: int) -> ir.Value:
    table, position = op.operands[0], op.operands[1 + axis]
    shape = shape_of(table)
    first = OPS.broadcast(held(position, shape[axis] - count), [count, 1], ())
    index = OPS.add(first, OPS.constant(np.arange(count, dtype=np.int32)[:, None]))
    others = [a for a in range(len(shape)) if a != axis]
    numbers = stablehlo.GatherDimensionNumbers.get(others, [axis], [], [], [axis], 1)
    return stablehlo.gather(
        table, index, numbers, [1 if a == axis else n for a, n in enumerate(shape)]
    )
