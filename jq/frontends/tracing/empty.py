"""Tensors without elements: constants, so that nobody asks for their ranges.

slice %x : tensor<3x8xf32> -> tensor<3x0xf32>          ->  dense<> : tensor<3x0xf32>
concatenate %x, %e : tensor<3x8xf32>, tensor<3x0xf32>  ->  %x
reduce(%e init: %i) : tensor<3x0xf32>                  ->  %i : tensor<3xf32>
dot_general %x, %w : tensor<3x0xf32>, tensor<0x8xf32>  ->  0 : tensor<3x8xf32>

dynamic_slice %x, %i : tensor<3x8xf32> -> tensor<3x8xf32>   ->  %x

Contractions without a single product are zero: IREE 3.13 crashes on them, and on slices of tensors
without axes at a position of the data. A slice of the whole begins at its start, wherever asked.
"""

import math

import numpy as np

from jq.ir import Op, at, dtype_of, ir, shape_of, walk
from jq.ir.arrays import SAFE_KINDS, StableHloOps
from jq.ir.build import integer, replace
from jq.ir.ops.lookup import is_product

OPS = StableHloOps()


def drop_empty(block: ir.Block) -> None:
    """Replaces what has no elements, and what is computed from it."""
    for op in [op for op in walk(block) if op.operation.name == "stablehlo.reduce"]:
        if not _size(op.operands[0]):
            _replace(op, list(op.operands)[len(op.operands) // 2 :])
    for op in walk(block):
        name, results = op.operation.name, list(op.results)
        if len(results) != 1 or name == "stablehlo.constant" or op.regions:
            continue
        if name == "stablehlo.dynamic_slice" and op.operands[0].type == results[0].type:
            replace(op, [op.operands[0]])
            continue
        kind = dtype_of(results[0])
        empty = [v for v in op.operands if not _size(v)]
        if not _size(results[0]):
            if kind.kind in SAFE_KINDS:
                with at(op):
                    replace(op, [OPS.constant(np.zeros(shape_of(results[0]), kind))])
        elif empty and is_product(op):
            with at(op):
                zero = OPS.constant(np.zeros((), kind))
            _replace(op, [zero])
        elif empty and name == "stablehlo.concatenate":
            with at(op):
                full = [v for v in op.operands if _size(v)]
                replace(op, [OPS.concatenate(full, integer(op, "dimension"))])


def _replace(op: Op, scalars: list[ir.Value]) -> None:
    """Every result becomes one number."""
    with at(op):
        both = zip(scalars, op.results, strict=True)
        replace(op, [OPS.broadcast(scalar, shape_of(v), []) for scalar, v in both])


def _size(value: ir.Value) -> int:
    return math.prod(shape_of(value))
