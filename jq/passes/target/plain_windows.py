"""Windows of convolutions that IREE 3.13 compiles wrongly, or not at all, are written out.

    convolution(%x, %w) window = {reverse = [true], pad = [[-1, 0]], lhs_dilate = [2]}
    ->
    convolution(pad %x, reverse %w) window = {}

- A reversed window is ignored when each group has one input channel: the kernel is reversed.
- Negative padding and a dilated input: the input is padded (or cut) and dilated beforehand.
- A grouped convolution whose result has one row is refused where its strides do not end on the
  last element: elements that are never read are cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import attributes_of, i64_array, integers
from jq.ops.convolution import Layout, pad, padding_of
from jq.passes.base import Pass, PassContext

OPS = StableHloOps()


@dataclass(frozen=True)
class PlainWindows(Pass):
    name = "plain-windows"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            if op.operation.name == "stablehlo.convolution":
                with at(op):
                    changed |= any([_reverse(op), _pad(op)])
        return changed


def reversed_axes(op: Any) -> list[int]:
    """The kernel's axes along which a convolution's window is reversed."""
    attrs = attributes_of(op)
    if op.operation.name != "stablehlo.convolution" or "window_reversal" not in attrs:
        return []
    flags = list(ir.DenseBoolArrayAttr(attrs["window_reversal"]))
    return [a for a, flag in zip(Layout.of(op).kernel_spatial, flags, strict=True) if flag]


def _reverse(op: Any) -> bool:
    axes = reversed_axes(op)
    if axes:
        kernel = op.operands[1]
        op.operation.operands[1] = ir.Operation.create(
            "stablehlo.reverse",
            results=[kernel.type],
            operands=[kernel],
            attributes={"dimensions": i64_array(axes)},
        ).result
        del op.operation.attributes["window_reversal"]
    return bool(axes)


def _pad(op: Any) -> bool:
    layout, padding = Layout.of(op), padding_of(op)
    axes = layout.input_spatial
    dilation = integers(op, "lhs_dilation") or (1,) * len(axes)
    excess = _excess(op, layout, padding, dilation)
    padding = [(low, high - e) for (low, high), e in zip(padding, excess, strict=True)]
    if max(dilation, default=1) == 1 and not any(p < 0 for pair in padding for p in pair):
        _set_padding(op, padding)
        return any(excess)
    x = op.operands[0]
    low, high, interior = ([0] * len(shape_of(x)) for _ in range(3))
    for axis, pair, d in zip(axes, padding, dilation, strict=True):
        (low[axis], high[axis]), interior[axis] = pair, d - 1
    zero = OPS.constant(np.zeros((), dtype_of(x)))
    op.operation.operands[0] = pad(x, zero, low, high, interior)
    _set_padding(op, [(0, 0)] * len(axes))
    op.operation.attributes["lhs_dilation"] = i64_array([1] * len(axes))
    return True


def _set_padding(op: Any, pairs: list[tuple[int, int]]) -> None:
    array = np.array(pairs, np.int64).reshape(len(pairs), 2)
    op.operation.attributes["padding"] = ir.DenseElementsAttr.get(array)


def _excess(
    op: Any, layout: Layout, padding: list[tuple[int, int]], dilation: Sequence[int]
) -> list[int]:
    """How many of the last elements a grouped convolution's strides never reach."""
    count = len(layout.input_spatial)
    if ir.IntegerAttr(op.operation.attributes["feature_group_count"]).value == 1:
        return [0] * count
    x, kernel = shape_of(op.operands[0]), shape_of(op.operands[1])
    stride = integers(op, "window_strides") or (1,) * count
    kernel_dilation = integers(op, "rhs_dilation") or (1,) * count
    excess = []
    for i, (axis, kernel_axis) in enumerate(
        zip(layout.input_spatial, layout.kernel_spatial, strict=True)
    ):
        size = (x[axis] - 1) * dilation[i] + 1 + sum(padding[i])
        reach = (kernel[kernel_axis] - 1) * kernel_dilation[i] + 1
        excess.append((size - reach) % stride[i] if size >= reach else 0)
    return excess
