"""Convolution of quantized values: strided, dilated, grouped, depthwise, transposed.

    conv(dequantize(x), dequantize(w))
    -> convert(conv(OPS.pad(x.codes, x.zero_point), w.codes) - corrections) * (x.scale * w.scale)

A nonzero zero point makes the padding explicit (padding and interior zeros are real zeros, whose
code is the zero point), so that the correction is the same at every output position."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from jq.formats.blocks import full
from jq.ir import OPS, Op, Program, dtype_of, ir, shape_of
from jq.ir.build import NAME, i64_array, like, string_attr
from jq.ir.markers import Marker
from jq.ir.ops.base import Contraction, QuantizedOperand, Role, codes_of
from jq.ir.ops.geometry import Geometry, Matrices, NotMatrices, WeightProduct
from jq.ir.ops.integer import Spread, accumulator, centred, centred_sums, correct, rescale
from jq.ir.ops.layout import CONVOLUTION, Layout, Window, groups_of, is_plain, with_edges


class Convolution(Contraction):
    op = CONVOLUTION
    sums_products = True
    feature_map = True

    def geometry(self, op: Op) -> Geometry:
        d, (x, kernel) = Layout.of(op), (shape_of(v) for v in op.operands)
        window = Window.of(op, kernel)
        return Geometry(
            window=window.sizes,
            stride=window.strides,
            dilation=window.dilations,
            interior=window.spacing,
            padding=window.padding,
            channels=(x[d.input_feature], kernel[d.kernel_out]),
            groups=groups_of(op),
            batch=x[d.input_batch],
        )

    def roles(self, op: Op) -> tuple[Role, ...]:
        d = Layout.of(op)
        spatial = frozenset(d.input_spatial) | {d.input_feature}
        kernel = frozenset(d.kernel_spatial) | {d.kernel_in}
        return Role(0, spatial, None), Role(1, kernel, d.kernel_in)

    def terms(self, op: Op) -> int:
        d, kernel = Layout.of(op), shape_of(op.operands[1])
        return math.prod(kernel[a] for a in (d.kernel_in, *d.kernel_spatial))

    def result_axes(self, op: Op, index: int) -> dict[int, int]:
        d = Layout.of(op)
        own = (d.input_batch, d.output_batch), (d.kernel_out, d.output_feature)
        return dict([own[index]])

    def decline(self, op: Op) -> str | None:
        if groups_of(op, "batch_group_count") != 1:
            return "batch groups (the gradient of a convolution) have no integer form"
        return None

    def lower(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        x, w = (codes_of(m) for m in markers)
        roles, spread, dtype = self.roles(op), _spread(op), dtype_of(op.results[0])
        if w is None or w.offset is not None or not w.constant_along(roles[1].contracted):
            return None
        if x is None:  # a float input: conv(x, float(codes - zero_point)) * scale
            weight = OPS.convert(centred(w, np.float32), dtype_of(op.operands[0]))
            wide = dtype if dtype.itemsize > 4 else np.dtype(np.float32)
            total = wide if dtype == np.float16 else dtype  # which sums of codes leave
            acc = like(op, [op.operands[0], weight], shape_of(op.results[0]), total)
            scale = OPS.convert(spread[1](w.scale), wide)
            return OPS.convert(OPS.mul(OPS.convert(acc, wide), scale), dtype)
        if not x.constant_along(roles[0].contracted):
            return None
        name, acc = string_attr(op, NAME) or "conv", self.sum_of_products(op, x, w)
        return OPS.convert(rescale(program, acc, (x.scale, w.scale), spread, name), dtype)

    def sum_of_products(self, op: Op, lhs: QuantizedOperand, rhs: QuantizedOperand) -> ir.Value:
        x, w, spread, roles = lhs, rhs, _spread(op), self.roles(op)
        contracted = roles[0].contracted, roles[1].contracted
        window: dict[str, ir.Attribute] = {}
        if x.zero_point is not None:
            x, window = _padded(op, x)
        shape = shape_of(op.results[0])
        wide = max(dtype_of(x.codes), dtype_of(w.codes), key=lambda d: d.itemsize)
        x, w = (replace(c, codes=OPS.convert(c.codes, wide)) for c in (x, w))  # equal types only
        dtype, own = accumulator(x, w), {"precision_config": None, **window}
        acc = like(op, [x.codes, w.codes], shape, dtype, **own)
        if w.zero_point is not None:
            # With zero points on both sides the sum of a window's codes is itself a convolution.
            ones = full(OPS, 1, shape_of(w.codes), wide)
            sums = like(op, [x.codes, ones], shape, dtype, **own)
            zero = spread[1](OPS.convert(w.zero_point, dtype))
            acc = OPS.sub(acc, OPS.mul(zero, sums))
            w = replace(w, sum=centred_sums(w, contracted[1], dtype), zero_point=None)
        return correct(acc, x, w, contracted, self.terms(op), spread)

    def matrices(self, product: WeightProduct) -> Matrices:
        """The product with the patches of its input."""
        if product.side != 1:
            raise NotMatrices("the input of the convolution is the stored operand")
        window = Window.of_product(product, product.weight.shape)
        *contracted, kernel_out = window.layout.kernel_order
        rows = window.patches(OPS.convert(product.x, np.float32))
        result = partial(window.layout.result, shape=product.shape)
        return Matrices((kernel_out,), contracted, rows, result)

    def summed_with(self, op: Op, index: int) -> dict[int, int]:
        d = Layout.of(op)
        pair = d.input_feature, d.kernel_in
        return {pair[index]: pair[1 - index]} if is_plain(op) else {}

    def linear_axes(self, op: Op, index: int) -> dict[int, int]:
        return self.result_axes(op, index) if is_plain(op) else {}

    def details(self, op: Op) -> dict[str, Any]:
        layout, window = Layout.of(op), Window.of(op, shape_of(op.operands[1]))
        if groups_of(op, "batch_group_count") != 1:
            raise ValueError("a convolution with batch groups is not replayed")
        return {
            "input": [layout.input_batch, layout.input_feature, *layout.input_spatial],
            "kernel": [layout.kernel_out, layout.kernel_in, *layout.kernel_spatial],
            "output": [layout.output_batch, layout.output_feature, *layout.output_spatial],
            "padding": [list(pair) for pair in window.padding],
            "reversal": list(window.reversal),
            "groups": groups_of(op),
            "window_strides": list(window.strides),
            "lhs_dilation": list(window.spacing),
            "rhs_dilation": list(window.dilations),
        }


def _spread(op: Op) -> tuple[Spread, Spread]:
    shape, d = shape_of(op.results[0]), Layout.of(op)

    def along(kept: int, target: int) -> Spread:
        def apply(grid: ir.Value) -> ir.Value:
            return OPS.broadcast(OPS.reshape(grid, [shape_of(grid)[kept]]), shape, [target])

        return apply

    return along(d.input_batch, d.output_batch), along(d.kernel_out, d.output_feature)


def _padded(op: Op, x: QuantizedOperand) -> tuple[QuantizedOperand, dict[str, ir.Attribute]]:
    """The input with its padding and interior zeros written out as zero points."""
    assert x.zero_point is not None
    window = Window.of(op, shape_of(op.operands[1]))
    order = window.layout.input_order
    low, high, interior = (
        [part[order.index(a)] for a in range(len(order))] for part in window.edges
    )
    zero = OPS.convert(x.zero_point, dtype_of(x.codes))
    none = ir.DenseElementsAttr.get(np.zeros((len(window.sizes), 2), np.int64))
    plain = {"padding": none, "lhs_dilation": i64_array([1] * len(window.sizes))}
    return replace(x, codes=with_edges(x.codes, zero, (low, high, interior))), plain
