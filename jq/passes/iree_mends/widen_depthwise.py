"""Depthwise convolutions whose result is wider than their operands get wide operands.

    convolution(%x : i8, %w : i8) -> i32, one filter a channel
    ->
    convolution(barrier(convert %x : i32), barrier(convert %w : i32)) -> i32

IREE 3.13 compiles the narrow form to garbage; without the barriers it finds it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.ir import Op, Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.ops.layout import Layout, groups_of
from jq.passes.base import Pass, PassContext

OPS = StableHloOps()


@dataclass(frozen=True)
class WidenDepthwise(Pass):
    name = "widen-depthwise"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            if is_narrow_depthwise(op):
                with at(op):
                    for i in (0, 1):
                        wide = OPS.convert(op.operands[i], dtype_of(op.results[0]))
                        op.operation.operands[i] = barrier(wide)
                changed = True
        return changed


def is_narrow_depthwise(op: Op) -> bool:
    """A convolution with one input channel a group, one filter each, and a result that is wider
    than the filter."""
    if (d := Layout.match(op)) is None:
        return False
    groups, kernel = groups_of(op), shape_of(op.operands[1])
    depthwise = kernel[d.kernel_in] == 1 and kernel[d.kernel_out] == groups
    return depthwise and groups > 1 and dtype_of(op.operands[1]) != dtype_of(op.results[0])


def barrier(value: ir.Value) -> ir.Value:
    """`value` behind an optimization barrier, which the compiler does not look through."""
    return ir.Operation.create(
        "stablehlo.optimization_barrier", results=[value.type], operands=[value]
    ).result
