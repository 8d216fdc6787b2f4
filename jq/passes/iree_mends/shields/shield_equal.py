"""What is reduced is hidden from the compiler where it is computed from equal constants alone.

    reduce (convert %w), %w a weight of equal elements
    ->
    reduce (optimization_barrier (convert %w))

IREE 3.13 writes the one number into the sum, and adds it once for each vector instead of once for
each element: the sum of [[127, 127, 127]] in int8 was 127. So do windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program, at, ir, shape_of
from jq.ir.values import maker
from jq.passes.base import Pass, PassContext
from jq.passes.iree_mends.shields.shield_reductions import is_elementwise
from jq.passes.iree_mends.widen_depthwise import barrier

REDUCTIONS = ("stablehlo.reduce", "stablehlo.reduce_window")
MOVES = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")


@dataclass(frozen=True)
class ShieldEqual(Pass):
    name = "shield-equal"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed, equal = False, _weights(program)
        for op in program.walk():
            if _gives_equal(op, equal):
                equal.update(op.operation.results)
            if op.operation.name not in REDUCTIONS:
                continue
            for i in range(len(op.operation.operands) // 2):  # the others are initial values
                value = op.operation.operands[i]
                if value in equal and _computed(value):
                    with at(op):
                        op.operation.operands[i] = barrier(value)
                    changed = True
        return changed


def _computed(value: ir.Value) -> bool:
    """Whether it is more than a constant, which IREE reduces rightly."""
    op = maker(value)
    return op is not None and op.operation.name != "stablehlo.constant"


def _weights(program: Program) -> set[ir.Value]:
    """Those whose elements are one number."""
    return {program.weight(name) for name, data in program.weights.items() if _is_one(data)}


def _is_one(data: object) -> bool:
    if not isinstance(data, np.ndarray) or not data.size:
        return False
    first = data.flat[0]
    return bool(first == data.flat[-1] and (data == first).all())  # the last is read first: cheap


def _gives_equal(op: Op, equal: set[ir.Value]) -> bool:
    """Whether all elements of a result are one number, which constants alone decide."""
    name, operands = op.operation.name, op.operation.operands
    if name == "stablehlo.constant":
        data = op.operation.attributes["value"]
        return isinstance(data, ir.DenseElementsAttr) and data.is_splat
    if name == "stablehlo.optimization_barrier" or len(op.operation.results) != 1:
        return False
    if not len(operands) or any(operand not in equal for operand in operands):
        return False
    return name in MOVES or is_elementwise(op) or not shape_of(op.operation.results[0])
