"""A broadcast that permutes becomes a transpose and a broadcast that keeps the order.

broadcast_in_dim %x, dims = [1, 2, 0]
->
broadcast_in_dim (transpose %x, dims = [2, 0, 1]), dims = [0, 1, 2]
"""

from dataclasses import dataclass

import numpy as np

from jq.ir import Op
from jq.ir.arrays import StableHloOps
from jq.ir.build import i64_array, integers
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()
DIMS = "broadcast_dimensions"


@dataclass(frozen=True)
class OrderBroadcasts(Mend):
    """A broadcast that permutes axes, and adds no elements, becomes the inverse permutation.
    Trap: traps/test_values.py::test_permuting_broadcast
    """

    name = "order-broadcasts"

    def finds(self, op: Op) -> bool:
        dims = integers(op, DIMS)
        return op.operation.name == "stablehlo.broadcast_in_dim" and list(dims) != sorted(dims)

    def rewritten(self, op: Op) -> None:
        dims = integers(op, DIMS)
        order = [int(i) for i in np.argsort(dims)]
        op.operation.operands[0] = OPS.transpose(op.operands[0], order)
        op.operation.attributes[DIMS] = i64_array(sorted(dims))
