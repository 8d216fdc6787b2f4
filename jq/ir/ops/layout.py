"""The layout of a convolution: which axis is which, its groups, and what is around its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.ir import Op, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.build import Attributes, attributes_of, i64_array

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
    count = len(Layout.of(op).input_spatial)
    padding = attributes_of(op).get("padding")
    if padding is None:
        return [(0, 0)] * count
    return [(int(low), int(high)) for low, high in np.array(padding).reshape(count, 2)]


def pad(
    x: ir.Value, value: ir.Value, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> ir.Value:
    """`stablehlo.pad`, with interior padding and negative edges allowed."""
    shape = [
        n + lo + hi + max(n - 1, 0) * mid
        for n, lo, hi, mid in zip(shape_of(x), low, high, interior, strict=True)
    ]
    return ir.Operation.create(
        "stablehlo.pad",
        results=[tensor_type(shape, dtype_of(x))],
        operands=[x, value],
        attributes={
            "edge_padding_low": i64_array(low),
            "edge_padding_high": i64_array(high),
            "interior_padding": i64_array(interior),
        },
    ).result
