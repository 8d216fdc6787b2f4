"""A product with an algorithm becomes a plain one, of at least the precision that it names.

    dot_general %a, %b, algorithm = <bf16, bf16, accumulation f32> : (bf16, bf16) -> bf16
    ->
    convert (dot_general %a, %b : (bf16, bf16) -> f32) : bf16

IREE 3.13 does not lower the attribute, and XLA ignores it on a CPU. Sums are in float32 or
float64, and an operand that has more bits than the algorithm wants keeps them.
"""

from __future__ import annotations

import numpy as np

from jq.ir import Op, at, dtype_of, func, ir, shape_of, stablehlo, to_dtype, walk
from jq.ir.arrays import StableHloOps
from jq.ir.build import like, replace

ALGORITHM = "algorithm"
OPS = StableHloOps()


def plain_products(module: ir.Module) -> None:
    """Replaces the products of all functions in place."""
    for function in module.body.operations:
        if isinstance(function, func.FuncOp):
            for op in list(walk(function.entry_block)):
                if op.operation.name == "stablehlo.dot_general" and ALGORITHM in op.attributes:
                    with at(op):
                        replace(op, [_plain(op)])


def _plain(op: Op) -> ir.Value:
    (result,) = op.operation.results
    algorithm = stablehlo.DotAlgorithm(op.operation.attributes[ALGORITHM])
    types = to_dtype(algorithm.accumulation_type), dtype_of(result)
    sums = np.dtype(np.float64 if np.float64 in types else np.float32)
    plain = like(op, list(op.operands), shape_of(result), sums, algorithm=None)
    return OPS.convert(plain, dtype_of(result))
