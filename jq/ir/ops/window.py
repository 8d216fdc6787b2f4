"""A convolution as a product: what its window sees, one row for each output position.

convolution %x, %w  ->  dot_general (patches of %x) [B, positions, taps * C], (%w as a matrix)
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jq.ir import dtype_of, ir, shape_of
from jq.ir.arrays import OPS
from jq.ir.build import Attributes, integers, strided_slice
from jq.ir.ops.layout import Layout, groups_of, pad, padding_of
from jq.ir.ops.matrices import NotMatrices


@dataclass(frozen=True)
class Window:
    """The attributes of a convolution, for any number of spatial dimensions.

    `sizes` are those of the filter.
    """

    layout: Layout
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    interior: tuple[int, ...]  # zeros between elements of the input
    dilations: tuple[int, ...]

    @staticmethod
    def of(attributes: Mapping[str, ir.Attribute], filter_shape: tuple[int, ...]) -> Window:
        """Raises `NotMatrices` for groups and reversed windows."""
        op = Attributes(attributes)
        layout = Layout.of(op)
        rank = len(layout.kernel_spatial)
        for key in ("feature_group_count", "batch_group_count"):
            if key in attributes and groups_of(op, key) != 1:
                raise NotMatrices("a convolution in groups is no product of matrices")
        reversal = attributes.get("window_reversal")
        if reversal is not None and any(ir.DenseBoolArrayAttr(reversal)):
            raise NotMatrices("a reversed window is no product of matrices")
        ones = (1,) * rank
        return Window(
            layout,
            tuple(filter_shape[a] for a in layout.kernel_spatial),
            integers(op, "window_strides") or ones,
            tuple(padding_of(op)),
            tuple(d - 1 for d in integers(op, "lhs_dilation") or ones),
            integers(op, "rhs_dilation") or ones,
        )

    def patches(self, x: ir.Value) -> ir.Value:
        """[B, positions..., taps * C] of the input: taps in the order of the filter's axes."""
        d = self.layout
        x = OPS.transpose(x, [d.input_batch, *d.input_spatial, d.input_feature])
        low, high = ([0, *(p[i] for p in self.padding), 0] for i in (0, 1))
        interior = [0, *self.interior, 0]
        if any((*low, *high, *interior)):
            x = pad(x, OPS.constant(np.zeros((), dtype_of(x))), low, high, interior)
        batch, *sizes, channels = shape_of(x)
        spans = [(k - 1) * by + 1 for k, by in zip(self.sizes, self.dilations, strict=True)]
        counts = [
            (n - span) // stride + 1
            for n, span, stride in zip(sizes, spans, self.strides, strict=True)
        ]
        if min(*counts, batch, channels) < 1:
            raise NotMatrices("an empty convolution")
        reach = [(n - 1) * by + 1 for n, by in zip(counts, self.strides, strict=True)]
        offsets = (range(0, n, by) for n, by in zip(spans, self.dilations, strict=True))
        taps = []
        for first in itertools.product(*offsets):
            end = [a + n for a, n in zip(first, reach, strict=True)]
            window = [0, *first, 0], [batch, *end, channels], [1, *self.strides, 1]
            taps.append(strided_slice(x, *window))
        return taps[0] if len(taps) == 1 else OPS.concatenate(taps, len(sizes) + 1)

    def result(self, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        """[B * positions, F] in the layout of the op's result."""
        order = self.layout.output_order
        value = OPS.reshape(value, [shape[a] for a in order])
        return OPS.transpose(value, [order.index(a) for a in range(len(shape))])
