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

from jq.ir import Program, at, ir, shape_of
from jq.ir.values import maker
from jq.passes.base import Pass, PassContext
from jq.passes.target.shields.shield_reductions import is_elementwise
from jq.passes.target.widen_depthwise import barrier

REDUCTIONS = ("stablehlo.reduce", "stablehlo.reduce_window")
MOVES = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")


@dataclass(frozen=True)
class ShieldEqual(Pass):
    name = "shield-equal"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            if op.operation.name not in REDUCTIONS:
                continue
            for i in range(len(op.operation.operands) // 2):  # the others are initial values
                value = op.operation.operands[i]
                if _computed(value) and _equal(program, value):
                    with at(op):
                        op.operation.operands[i] = barrier(value)
                    changed = True
        return changed


def _computed(value: ir.Value) -> bool:
    """Whether it is more than a constant, which IREE reduces rightly."""
    op = maker(value)
    return op is not None and op.operation.name != "stablehlo.constant"


def _equal(program: Program, value: ir.Value) -> bool:
    """Whether all its elements are one number, which constants alone decide."""
    if name := program.weight_name(value):
        data = program.weights[name]
        return isinstance(data, np.ndarray) and data.size > 0 and bool((data == data.flat[0]).all())
    op = maker(value)
    if op is None:
        return False
    if op.operation.name == "stablehlo.constant":
        data = op.operation.attributes["value"]
        return isinstance(data, ir.DenseElementsAttr) and data.is_splat
    if op.operation.name == "stablehlo.optimization_barrier":
        return False
    alike = op.operation.name in MOVES or is_elementwise(op) or not shape_of(value)
    return (
        alike
        and len(op.operation.operands) > 0
        and all(_equal(program, operand) for operand in op.operation.operands)
    )
