"""A broadcast that permutes becomes a transpose and a broadcast that keeps the order.

    broadcast_in_dim %x, dims = [1, 2, 0]
    ->
    broadcast_in_dim (transpose %x, dims = [2, 0, 1]), dims = [0, 1, 2]

IREE 3.13 turns one that adds no elements into the inverse transpose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program, at
from jq.ir.arrays import StableHloOps
from jq.ir.build import i64_array, integers
from jq.passes.base import Pass, PassContext

OPS = StableHloOps()
DIMS = "broadcast_dimensions"


@dataclass(frozen=True)
class OrderBroadcasts(Pass):
    name = "order-broadcasts"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            if not permutes(op):
                continue
            dims = integers(op, DIMS)
            order = [int(i) for i in np.argsort(dims)]
            with at(op):
                op.operation.operands[0] = OPS.transpose(op.operands[0], order)
                op.operation.attributes[DIMS] = i64_array(sorted(dims))
            changed = True
        return changed


def permutes(op: Op) -> bool:
    """Whether an op is a broadcast that puts axes into another order."""
    dims = integers(op, DIMS)
    return op.operation.name == "stablehlo.broadcast_in_dim" and list(dims) != sorted(dims)
