"""The layout of a convolution: which axis is which, its groups, what is around its input, and what
its window sees."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jq.ir import OPS, Op, dtype_of, ir, shape_of, stablehlo
from jq.ir.build import Attributes, integers, padding_pairs, reversed_axes, strided_slice
from jq.ir.ops.geometry import NotMatrices

CONVOLUTION = "convolution"


@dataclass(frozen=True)
class Layout:
    """Meaning of each axis of input, kernel and output."""

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_in: int
    kernel_out: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]

    @property
    def output_order(self) -> list[int]:
        """Axes of the result: batch, spatial ones in the order of the window's, filters."""
        return [self.output_batch, *self.output_spatial, self.output_feature]

    def attribute(self) -> ir.Attribute:
        return stablehlo.ConvDimensionNumbers.get(*vars(self).values())

    @staticmethod
    def match(op: Op) -> Layout | None:
        """That of a convolution; None for any other op."""
        return Layout.of(op) if op.operation.name == f"stablehlo.{CONVOLUTION}" else None

    @staticmethod
    def of(op: Op | Attributes) -> Layout:
        d = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        return Layout(
            d.input_batch_dimension,
            d.input_feature_dimension,
            tuple(d.input_spatial_dimensions),
            d.kernel_input_feature_dimension,
            d.kernel_output_feature_dimension,
            tuple(d.kernel_spatial_dimensions),
            d.output_batch_dimension,
            d.output_feature_dimension,
            tuple(d.output_spatial_dimensions),
        )


def groups_of(op: Op | Attributes, key: str = "feature_group_count") -> int:
    return ir.IntegerAttr(op.attributes[key]).value


def is_plain(op: Op) -> bool:
    """True if every filter reads all channels of all samples."""
    return groups_of(op) == groups_of(op, "batch_group_count") == 1


def padding_of(op: Op | Attributes) -> list[tuple[int, int]]:
    """Low and high padding of every spatial dimension; negative padding cuts."""
    return padding_pairs(op, len(Layout.of(op).input_spatial))


@dataclass(frozen=True)
class Window:
    """A convolution as a product: what its window sees, one row for each output position.

        convolution %x, %w  ->  dot_general (patches of %x) [B, positions, taps * C], %w as a matrix

    Its attributes are those of the convolution, for any number of spatial dimensions; `sizes` are
    those of the filter.
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
        if any(reversed_axes(op, rank)):
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
            x = OPS.pad(x, OPS.constant(np.zeros((), dtype_of(x))), low, high, interior)
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
