"""Products of a few rows with a tensor that lies in another order are written as sums of products.

    dot_general %q[h,g,d], %keys[t,h,d], batching_dims = [0] x [1], contracting_dims = [2] x [2]
    ->
    transpose (reduce_sum (broadcast %q * broadcast %keys) over d)

as a decoder's token meets its caches, where g heads may share one. Float32 alone; the sum may have
another order.
"""

import math
from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import reduce_sum, replace
from jq.ir.constants import evaluate
from jq.ir.ops.dims import Dims
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()
SMALLEST = 1 << 12  # elements that are worth it
ROWS = 8  # more are cheaper as a product, the copy included


@dataclass(frozen=True)
class SumProducts(Mend):
    """Slow: in front of a batched product of a few rows the other operand is copied into another
    order; a sum reads it as it lies.
    No trap: slow, not wrong
    """

    name = "sum-products"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in list(program.walk()):
            dims = Dims.match(op)
            side = _large_side(program, op, dims) if dims else None
            if dims is None or side is None:
                continue
            with at(op):
                value = _sum(op, dims, side)
            replace(op, [value])
            changed = True
        return changed


def _large_side(program: Program, op: Op, dims: Dims) -> int | None:
    """The operand that a copy would be made of; the other one has few rows for each batch."""
    values = list(op.operation.operands)
    float32 = all(dtype_of(v) == np.float32 for v in (*values, op.operation.results[0]))
    if not float32 or not dims.batch or not dims.contract:
        return None
    for side, large in enumerate(values):
        shape, other = shape_of(large), shape_of(values[1 - side])
        rows = math.prod(other[a] for a in dims.free(1 - side, len(other)))
        leading = sorted(pair[side] for pair in dims.batch) == list(range(len(dims.batch)))
        if rows <= ROWS and not leading and math.prod(shape) >= SMALLEST:
            return None if evaluate(program, large) is not None else side
    return None


def _sum(op: Op, dims: Dims, side: int) -> ir.Value:
    """With the rows as one axis right after the last axis of the batch."""
    large, row = op.operation.operands[side], op.operation.operands[1 - side]
    shape, small = shape_of(large), shape_of(row)
    free = dims.free(1 - side, len(small))
    at_rows = max(pair[side] for pair in dims.batch) + 1
    wide = [*shape[:at_rows], math.prod(small[a] for a in free), *shape[at_rows:]]

    def place(axis: int) -> int:
        return axis + (axis >= at_rows)

    of = {pair[1 - side]: place(pair[side]) for pair in (*dims.batch, *dims.contract)}
    order = sorted(of, key=lambda a: of[a])
    behind = [a for a in order if of[a] > at_rows]
    moved = [*(a for a in order if of[a] < at_rows), *free, *behind]
    flat = OPS.reshape(
        OPS.transpose(row, moved),
        [*(small[a] for a in order if of[a] < at_rows), wide[at_rows], *(small[a] for a in behind)],
    )
    x = OPS.broadcast(flat, wide, sorted([*of.values(), at_rows]))
    y = OPS.broadcast(large, wide, [place(a) for a in range(len(shape))])
    contracted = sorted(place(a) for a in dims.contracted(side))
    total = reduce_sum(OPS.mul(y, x), contracted)
    left = [a for a in range(len(wide)) if a not in contracted]
    others = [place(a) for a in dims.free(side, len(shape))]
    inner = [at_rows, *others] if side == 1 else [*others, at_rows]
    wanted = [*(place(pair[side]) for pair in dims.batch), *inner]
    total = OPS.transpose(total, [left.index(a) for a in wanted])
    return OPS.reshape(total, shape_of(op.operation.results[0]))
