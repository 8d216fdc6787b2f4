"""Convolution of quantized values: strided, dilated, grouped, depthwise, transposed.

    conv(dequantize(x), dequantize(w))
    -> convert(conv(OPS.pad(x.codes, x.zero_point), w.codes) - corrections) * (x.scale * w.scale)

A nonzero zero point makes the padding explicit (padding and interior zeros of a transposed
convolution are real zeros, whose code is the zero point), so that the correction is the
same at every output position.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jq.ir import OPS, Op, Program, dtype_of, ir, shape_of
from jq.ir.build import NAME, i64_array, integers, like, reversed_axes, string_attr
from jq.ir.markers import Marker
from jq.ir.ops.base import Axes, Contraction, QuantizedOperand, Role, codes_of
from jq.ir.ops.geometry import Geometry, Matrices, NotMatrices, WeightProduct, along
from jq.ir.ops.integer import Spread, accumulator, block_sums, correct, rescale
from jq.ir.ops.layout import CONVOLUTION, Layout, Window, groups_of, is_plain, padding_of


class Convolution(Contraction):
    op = CONVOLUTION
    sums_products = True
    feature_map = True

    def geometry(self, op: Op) -> Geometry:
        d, (x, kernel) = Layout.of(op), (shape_of(v) for v in op.operands)
        window = tuple(kernel[a] for a in d.kernel_spatial)
        return Geometry(
            window=window,
            stride=along(op, "window_strides", window),
            dilation=along(op, "rhs_dilation", window),
            interior=along(op, "lhs_dilation", window),
            padding=tuple(padding_of(op)),
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
        roles, d = self.roles(op), Layout.of(op)
        if w is None or w.offset is not None or not w.constant_along(roles[1].contracted):
            return None
        if x is None:
            return _scaled_after(op, w, d)
        if not x.constant_along(roles[0].contracted):
            return None
        return _integer(program, op, x, w, d, (roles[0].contracted, roles[1].contracted))

    def accumulate(self, op: Op, lhs: QuantizedOperand, rhs: QuantizedOperand) -> ir.Value | None:
        roles = self.roles(op)
        whole = [c.constant_along(r.contracted) for c, r in zip((lhs, rhs), roles, strict=True)]
        if not all(whole) or lhs.offset is not None or rhs.offset is not None:
            return None
        return _accumulate(op, lhs, rhs, Layout.of(op), (roles[0].contracted, roles[1].contracted))

    def matrices(self, product: WeightProduct) -> Matrices:
        """The product with the patches of its input."""
        if product.side != 1:
            raise NotMatrices("the input of the convolution is the stored operand")
        window = Window.of(product.attributes, product.weight.shape)
        patches = window.patches(OPS.convert(product.x, np.float32))
        *counts, k = shape_of(patches)
        d = window.layout
        return Matrices(
            (d.kernel_out,),
            (*d.kernel_spatial, d.kernel_in),
            OPS.reshape(patches, [math.prod(counts), k]),
            lambda value: window.result(value, product.shape),
        )

    def summed_with(self, op: Op, index: int) -> dict[int, int]:
        d = Layout.of(op)
        pair = d.input_feature, d.kernel_in
        return {pair[index]: pair[1 - index]} if is_plain(op) else {}

    def linear_axes(self, op: Op, index: int) -> dict[int, int]:
        return self.result_axes(op, index) if is_plain(op) else {}

    def details(self, op: Op) -> dict[str, Any]:
        layout, ones = Layout.of(op), [1] * (len(shape_of(op.operands[0])) - 2)
        if groups_of(op, "batch_group_count") != 1:
            raise ValueError("a convolution with batch groups is not replayed")
        return {
            "input": [layout.input_batch, layout.input_feature, *layout.input_spatial],
            "kernel": [layout.kernel_out, layout.kernel_in, *layout.kernel_spatial],
            "output": [layout.output_batch, layout.output_feature, *layout.output_spatial],
            "padding": [list(pair) for pair in padding_of(op)],
            "reversal": reversed_axes(op, len(ones)),
            "groups": groups_of(op),
            **{
                key: list(integers(op, key) or ones)
                for key in ("window_strides", "lhs_dilation", "rhs_dilation")
            },
        }


def _integer(
    program: Program,
    op: Op,
    x: QuantizedOperand,
    w: QuantizedOperand,
    d: Layout,
    contracted: tuple[Axes, Axes],
) -> ir.Value:
    acc = _accumulate(op, x, w, d, contracted)
    name = string_attr(op, NAME) or "conv"
    return OPS.convert(
        rescale(program, acc, (x.scale, w.scale), _spread(op, d), name), dtype_of(op.results[0])
    )


def _accumulate(
    op: Op, x: QuantizedOperand, w: QuantizedOperand, d: Layout, contracted: tuple[Axes, Axes]
) -> ir.Value:
    """The convolution of codes minus zero points."""
    spread = _spread(op, d)
    window: dict[str, ir.Attribute] = {}
    if x.zero_point is not None:
        x, window = _padded(op, x, d)
    shape = shape_of(op.results[0])
    wide = max(dtype_of(x.codes), dtype_of(w.codes), key=lambda d: d.itemsize)
    x, w = (replace(c, codes=OPS.convert(c.codes, wide)) for c in (x, w))  # equal types only
    acc = like(op, [x.codes, w.codes], shape, accumulator(x, w), precision_config=None, **window)
    if w.zero_point is not None:
        # With zero points on both sides the sum of a window's codes is itself a convolution.
        ones = OPS.broadcast(OPS.constant(np.ones((), dtype_of(w.codes))), shape_of(w.codes), [])
        sums = like(op, [x.codes, ones], shape, dtype_of(acc), precision_config=None, **window)
        zero = spread[1](OPS.convert(w.zero_point, dtype_of(acc)))
        acc = OPS.sub(acc, OPS.mul(zero, sums))
        w = replace(w, sum=_shifted_sum(w, contracted[1], acc), zero_point=None)
    terms = math.prod(shape_of(w.codes)[a] for a in contracted[1])
    return correct(acc, x, w, contracted, terms, spread)


def _shifted_sum(w: QuantizedOperand, contracted: Axes, acc: ir.Value) -> ir.Value:
    """sum(w - zero_point) per output channel, for the correction by the input's zero point."""
    assert w.zero_point is not None
    dtype = dtype_of(acc)
    sums = block_sums(w, contracted, dtype)
    terms = math.prod(shape_of(w.codes)[a] for a in contracted)
    shape = shape_of(sums)
    count = OPS.broadcast(OPS.constant(np.asarray(terms, dtype)), shape, [])
    zero = OPS.broadcast(OPS.convert(w.zero_point, dtype), shape, range(len(shape)))
    return OPS.sub(sums, OPS.mul(count, zero))


def _scaled_after(op: Op, w: QuantizedOperand, d: Layout) -> ir.Value:
    """Float input: conv(x, float(codes - zero_point)) * scale."""
    dtype = dtype_of(op.operands[0])
    weight = OPS.convert(w.codes, np.float32)
    if w.zero_point is not None:
        zero = OPS.convert(w.zero_point, np.float32)
        shape = shape_of(weight)
        weight = OPS.sub(weight, OPS.broadcast(zero, shape, range(len(shape))))
    operands = [op.operands[0], OPS.convert(weight, dtype)]
    acc = like(op, operands, shape_of(op.results[0]), dtype_of(op.results[0]))
    scaled = OPS.mul(OPS.convert(acc, np.float32), _spread(op, d)[1](w.scale))
    return OPS.convert(scaled, dtype_of(op.results[0]))


def _spread(op: Op, d: Layout) -> tuple[Spread, Spread]:
    shape = shape_of(op.results[0])

    def along(kept: int, target: int) -> Spread:
        def apply(grid: ir.Value) -> ir.Value:
            flat = OPS.reshape(grid, [shape_of(grid)[kept]])
            return OPS.broadcast(flat, shape, [target])

        return apply

    return along(d.input_batch, d.output_batch), along(d.kernel_out, d.output_feature)


def _padded(
    op: Op, x: QuantizedOperand, d: Layout
) -> tuple[QuantizedOperand, dict[str, ir.Attribute]]:
    """The input with its padding and interior zeros written out as zero points."""
    assert x.zero_point is not None
    rank, spatial = len(shape_of(x.codes)), d.input_spatial
    pairs = padding_of(op)
    dilation = integers(op, "lhs_dilation") or (1,) * len(spatial)
    low, high, interior = ([0] * rank for _ in range(3))
    for i, axis in enumerate(spatial):
        low[axis], high[axis] = pairs[i]
        interior[axis] = dilation[i] - 1
    if not any(low + high + interior):
        return x, {}
    zero = OPS.convert(x.zero_point, dtype_of(x.codes))
    if math.prod(shape_of(zero)) == 1:
        codes = OPS.pad(x.codes, OPS.reshape(zero, []), low, high, interior)
    else:  # one zero point a sample: pad with anything, then choose by position
        blank = OPS.constant(np.zeros((), dtype_of(x.codes)))
        padded = OPS.pad(x.codes, blank, low, high, interior)
        shape = shape_of(padded)
        inside = OPS.broadcast(OPS.constant(np.ones((), np.bool_)), shape_of(x.codes), [])
        mask = OPS.pad(inside, OPS.constant(np.zeros((), np.bool_)), low, high, interior)
        codes = OPS.select(mask, padded, OPS.broadcast(zero, shape, range(rank)))
    none = ir.DenseElementsAttr.get(np.zeros((len(spatial), 2), np.int64))
    plain = {"padding": none, "lhs_dilation": i64_array([1] * len(spatial))}
    return replace(x, codes=codes), plain
