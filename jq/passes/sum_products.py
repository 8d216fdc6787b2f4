"""Products of one row with a tensor that lies in another order are written as sums of products.

    dot_general %q[h,1,d], %keys[t,h,d], batching_dims = [0] x [1], contracting_dims = [2] x [2]
    ->
    transpose (reduce_sum (broadcast %q * %keys) over d)

as a decoder's token meets its caches. IREE copies the large operand into another order in front of
a batched product; a sum reads it as it lies. Float32 alone; the sum may have another order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import reduce_sum, replace
from jq.ir.constants import evaluate
from jq.ops.dot_general import Dims
from jq.passes.base import Pass, PassContext

OPS = StableHloOps()
SMALLEST = 1 << 12  # elements that are worth it


@dataclass(frozen=True)
class SumProducts(Pass):
    name = "sum-products"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in list(program.walk()):
            if op.operation.name != "stablehlo.dot_general":
                continue
            dims = Dims.of(op)
            side = _large_side(program, op, dims)
            if side is None:
                continue
            with at(op):
                value = _sum(op, dims, side)
            replace(op, [value])
            changed = True
        return changed


def _large_side(program: Program, op: Any, dims: Dims) -> int | None:
    """The operand that a copy would be made of; the other one has a single row for each batch."""
    values = list(op.operation.operands)
    float32 = all(dtype_of(v) == np.float32 for v in (*values, op.operation.results[0]))
    if not float32 or not dims.batch or not dims.contract:
        return None
    for side, large in enumerate(values):
        shape, other = shape_of(large), shape_of(values[1 - side])
        rows = math.prod(other[a] for a in dims.free(1 - side, len(other)))
        leading = sorted(pair[side] for pair in dims.batch) == list(range(len(dims.batch)))
        if rows == 1 and not leading and math.prod(shape) >= SMALLEST:
            return None if evaluate(program, large) is not None else side
    return None


def _sum(op: Any, dims: Dims, side: int) -> ir.Value:
    large, row = op.operation.operands[side], op.operation.operands[1 - side]
    shape, rank = shape_of(large), len(shape_of(row))
    place = {pair[1 - side]: pair[side] for pair in (*dims.batch, *dims.contract)}
    kept = [a for a in range(rank) if a in place]
    order = sorted(kept, key=lambda a: place[a])
    flat = OPS.transpose(OPS.reshape(row, [shape_of(row)[a] for a in kept]), _ranks(order))
    wide = OPS.broadcast(flat, shape, sorted(place.values()))
    contracted = sorted(dims.contracted(side))
    total = reduce_sum(OPS.mul(large, wide), contracted)
    left = [a for a in range(len(shape)) if a not in contracted]
    wanted = [*(pair[side] for pair in dims.batch), *dims.free(side, len(shape))]
    total = OPS.transpose(total, [left.index(a) for a in wanted])
    return OPS.reshape(total, shape_of(op.operation.results[0]))


def _ranks(order: list[int]) -> list[int]:
    """Axes in `order`, counted among themselves."""
    return [sorted(order).index(a) for a in order]
