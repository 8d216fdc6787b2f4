"""Layouts of convolutions: axes, groups, what is around the input, and what the window sees."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.blocks import full
from jq.ir import OPS, Op, ir, shape_of, stablehlo
from jq.ir.build import Described, integers, padding_pairs, reversed_axes, strided_slice
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
    def input_order(self) -> list[int]:
        """Axes of the input: batch, spatial ones in the order of the window's, channels."""
        return [self.input_batch, *self.input_spatial, self.input_feature]

    @property
    def kernel_order(self) -> list[int]:
        """Axes of the kernel: spatial ones, channels, filters."""
        return [*self.kernel_spatial, self.kernel_in, self.kernel_out]

    @property
    def output_order(self) -> list[int]:
        """Axes of the result: batch, spatial ones in the order of the window's, filters."""
        return [self.output_batch, *self.output_spatial, self.output_feature]

    @property
    def channels_last(self) -> bool:
        """The result is [batch, ..., filters], its spatial axes in the window's order."""
        return self.output_order == sorted(self.output_order)

    def result(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """[B * positions, F] as the op's result, whose shape is `shape`."""
        order = self.output_order
        value = OPS.reshape(value, [shape[a] for a in order])
        return OPS.transpose(value, [order.index(a) for a in range(len(shape))])

    def attribute(self) -> ir.Attribute:
        return stablehlo.ConvDimensionNumbers.get(*vars(self).values())

    @staticmethod
    def match(op: Op) -> "Layout | None":
        """The layout of a convolution; None for any other op."""
        return Layout.of(op) if op.operation.name == f"stablehlo.{CONVOLUTION}" else None

    @staticmethod
    def of(op: Described) -> "Layout":
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


def groups_of(op: Described, key: str = "feature_group_count") -> int:
    return ir.IntegerAttr(op.attributes[key]).value


def is_plain(op: Op) -> bool:
    """True if every filter reads all channels of all samples."""
    return groups_of(op) == groups_of(op, "batch_group_count") == 1


def padding_of(op: Described) -> list[tuple[int, int]]:
    """Low and high padding of every spatial dimension; negative padding cuts."""
    return padding_pairs(op, len(Layout.of(op).input_spatial))


def turned_axes(op: Op) -> list[int]:
    """The kernel's axes along which the window is reversed."""
    axes = Layout.of(op).kernel_spatial
    return [a for a, flag in zip(axes, reversed_axes(op, len(axes)), strict=True) if flag]


@dataclass(frozen=True)
class Window:
    """The window of a convolution, along any number of spatial axes.

    Attributes:
        sizes: of the kernel.
        spacing: how far apart elements of the input are; 1: side by side."""

    layout: Layout
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    spacing: tuple[int, ...]
    dilations: tuple[int, ...]
    reversal: tuple[bool, ...]

    @staticmethod
    def of(op: Described, kernel: Sequence[int]) -> "Window":
        """The window of a convolution with a kernel of that shape."""
        layout = Layout.of(op)
        sizes = tuple(kernel[a] for a in layout.kernel_spatial)
        ones = (1,) * len(sizes)
        return Window(
            layout,
            sizes,
            integers(op, "window_strides") or ones,
            tuple(padding_of(op)),
            integers(op, "lhs_dilation") or ones,
            integers(op, "rhs_dilation") or ones,
            tuple(reversed_axes(op, len(sizes))),
        )

    def widened(self, rank: int) -> "Window":
        """The same with axes of one element in front, so that there are `rank`."""
        more = rank - len(self.sizes)
        ones, zeros = (1,) * more, ((0, 0),) * more
        return Window(
            self.layout,
            ones + self.sizes,
            ones + self.strides,
            zeros + self.padding,
            ones + self.spacing,
            ones + self.dilations,
            (False,) * more + self.reversal,
        )

    @property
    def edges(self) -> tuple[list[int], list[int], list[int]]:
        """Padding of an input [B, spatial..., C]: low, high, between elements."""
        low, high = ([0, *(pair[i] for pair in self.padding), 0] for i in (0, 1))
        return low, high, [0, *(n - 1 for n in self.spacing), 0]

    def taps(self, x: Array, ops: ArrayOps = OPS) -> Array:
        """[B, positions..., taps * C] of the input: data moved, nothing computed.

        Positions and taps are in the order of its spatial axes; C counts all groups."""
        in_numpy = _padded, lambda x, *window: x[tuple(map(slice, *window))]
        pad, cut = (OPS.pad, strided_slice) if ops is OPS else in_numpy
        x = pad(ops.transpose(x, self.layout.input_order), 0, *self.edges)
        batch, *given, channels = ops.shape(x)
        spans = [(k - 1) * by + 1 for k, by in zip(self.sizes, self.dilations, strict=True)]
        counts = [
            max(0, (n - span) // stride + 1)
            for n, span, stride in zip(given, spans, self.strides, strict=True)
        ]
        reach = [max(0, (n - 1) * by + 1) for n, by in zip(counts, self.strides, strict=True)]
        offsets = [
            range(0, span, by)[:: -1 if turned else 1]
            for span, by, turned in zip(spans, self.dilations, self.reversal, strict=True)
        ]
        taps = []
        for first in itertools.product(*offsets):
            end = [a + n for a, n in zip(first, reach, strict=True)]
            window = [0, *first, 0], [batch, *end, channels], [1, *self.strides, 1]
            taps.append(cut(x, *window))
        return taps[0] if len(taps) == 1 else ops.concatenate(taps, len(given) + 1)

    @staticmethod
    def of_product(op: Described, kernel: Sequence[int]) -> "Window":
        """The window of a convolution that is a product of matrices; `NotMatrices` of others."""
        if any(groups_of(op, f"{key}_group_count") != 1 for key in ("feature", "batch")):
            raise NotMatrices("a convolution in groups is no product of matrices")
        return Window.of(op, kernel)

    def patches(self, x: ir.Value) -> ir.Value:
        """The left operand of the convolution as a product: [B * positions, taps * C].

        convolution %x, %w  ->  dot_general (patches of %x), (%w in `kernel_order`, as a matrix)"""
        taps = self.taps(x)
        if 0 in shape_of(taps):
            raise NotMatrices("an empty convolution")
        *positions, depth = shape_of(taps)
        return OPS.reshape(taps, [math.prod(positions), depth])


def _padded(x: np.ndarray, zero: int, *edges: Sequence[int]) -> np.ndarray:
    """StableHLO's pad, where negative edges cut, in NumPy."""
    if not any(map(any, edges)):
        return x
    own, inner = [], []
    for n, low, high, between in zip(x.shape, *edges, strict=True):
        size = max(0, n + (n - 1) * between)
        own.append(slice(max(low, 0), max(low, 0) + size, 1 + between))
        whole = max(low, 0) + size + max(high, 0)
        inner.append((whole, slice(max(-low, 0), whole - max(-high, 0))))
    wide = np.full([whole for whole, _ in inner], zero, x.dtype)
    wide[tuple(own)] = x
    return wide[tuple(part for _, part in inner)]


def with_edges(
    x: ir.Value, zero: ir.Value, edges: tuple[list[int], list[int], list[int]]
) -> ir.Value:
    """`zero`: one number, or one for each index of some axes of `x`."""
    if not any(map(any, edges)):
        return x
    if math.prod(shape_of(zero)) == 1:
        return OPS.pad(x, OPS.reshape(zero, []), *edges)
    wide, inside = (OPS.pad(v, 0, *edges) for v in (x, full(OPS, 1, shape_of(x), np.bool_)))
    axes = range(len(shape_of(wide)))
    return OPS.select(inside, wide, OPS.broadcast(zero, shape_of(wide), axes))
