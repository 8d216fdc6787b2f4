"""Contractions without a single product are zero: IREE 3.13 crashes on them.

dot_general %x, %w : tensor<3x0xf32>, tensor<0x8xf32>  ->  0 : tensor<3x8xf32>
"""

from __future__ import annotations

import numpy as np

from jq.ir import at, dtype_of, ir, shape_of, walk
from jq.ir.arrays import StableHloOps
from jq.ir.build import replace

OPS = StableHloOps()


def drop_empty_sums(block: ir.Block) -> None:
    """Replaces every product and convolution that has an operand without elements."""
    for op in walk(block):
        if op.operation.name not in ("stablehlo.dot_general", "stablehlo.convolution"):
            continue
        if all(np.prod(shape_of(v), dtype=int) for v in op.operands):
            continue
        (result,) = op.results
        with at(op):
            zero = OPS.constant(np.zeros((), dtype_of(result)))
            replace(op, [OPS.broadcast(zero, shape_of(result), [])])
