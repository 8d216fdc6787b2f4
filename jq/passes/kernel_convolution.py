"""Convolutions of activations with a constant filter are computed by the convolution kernel.

    composite "jq.contract" %x.codes, ..., %w.codes, %w.scale             (convolution)
    [add bias] [activation] [add residual] [composite "jq.quantize"]
    ->
    call @jq_convolution(pad(%x.codes, zero point), %w.packed, %init, %scale, ...)

Fires on one or two spatial dimensions, int8 x int8, with zero points that are constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.formats import NUMPY, get_format
from jq.formats.affine import Affine
from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.build import Attributes, integers
from jq.ir.constants import evaluate
from jq.ir.contract import Contract, match_contract
from jq.kernels import Convolution as ConvolutionKernel
from jq.kernels import Dequantize
from jq.ops.convolution import Layout, pad
from jq.passes._kernel import OPS, NoKernel, call_kernel, isa_of
from jq.passes._tail import Tail
from jq.passes.base import Pass, PassContext

MOST_PACKED = 2  # a filter that packing makes larger than this is not stored that way
SMALL = 1024  # bytes that nobody will miss


@dataclass(frozen=True)
class KernelConvolution(Pass):
    name = "kernel-convolution"

    def run(self, program: Program, cx: PassContext) -> bool:
        isa, changed = isa_of(cx.target), False
        contracts = [op for op in program.walk() if match_contract(op)] if isa else []
        for op in contracts:
            c = match_contract(op)  # now: an operand may have been replaced since
            if c is None or c.op_type != "convolution" or isa is None:
                continue
            try:
                cx.kernels[c.name] = _lower(program, c, isa)
                changed = True
            except NoKernel as reason:
                cx.without_kernel[c.name] = str(reason)
        return changed


@dataclass(frozen=True)
class Window:
    """Two spatial dimensions, whatever the op had: strides, padding, dilations."""

    strides: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    interior: tuple[int, int]  # zeros between elements of the input
    dilations: tuple[int, int]
    reversal: tuple[bool, bool]

    @staticmethod
    def of(c: Contract, rank: int) -> Window:
        missing = 2 - rank
        holder = Attributes(c.attributes)
        pairs = np.zeros((rank, 2), np.int64)
        if "padding" in c.attributes:
            pairs = np.array(c.attributes["padding"]).reshape(rank, 2)
        reversal = [False] * rank
        if "window_reversal" in c.attributes:
            reversal = [bool(b) for b in ir.DenseBoolArrayAttr(c.attributes["window_reversal"])]

        def two(values: tuple[Any, ...], default: Any) -> Any:
            return (default,) * missing + (values or (default,) * rank)

        return Window(
            two(integers(holder, "window_strides"), 1),
            two(tuple((int(a), int(b)) for a, b in pairs), (0, 0)),
            two(tuple(d - 1 for d in integers(holder, "lhs_dilation")), 0),
            two(integers(holder, "rhs_dilation"), 1),
            two(tuple(reversal), 0),
        )


def _lower(program: Program, c: Contract, isa: str) -> str:
    if any(not isinstance(side, tuple) for side in c.sides):
        raise NoKernel("one operand is float")
    (x_enc, x), (w_enc, w) = c.sides
    if x_enc.format != "int8" or w_enc.format != "int8" or w_enc.scheme == "asymmetric":
        raise NoKernel(f"no kernel for {x_enc.format} x {w_enc.scheme} {w_enc.format}")
    arrays = {name: evaluate(program, part) for name, part in w.items()}
    if any(a is None for a in arrays.values()):
        raise NoKernel("the filter is no constant")
    zero = evaluate(program, x["zero_point"]) if "zero_point" in x else np.zeros(1, np.int32)
    if zero is None or zero.size != 1:
        raise NoKernel("zero points that are found at run time")
    d, point = _layout(c), int(zero.reshape(-1)[0])
    rank = len(d.input_spatial)
    if rank not in (1, 2):
        raise NoKernel(f"no kernel for {rank} spatial dimensions")
    window = Window.of(c, rank)
    weight, scale = _filter(w_enc, {k: np.asarray(a) for k, a in arrays.items()}, d, window)
    groups = ir.IntegerAttr(c.attributes["feature_group_count"]).value
    dtype = dtype_of(c.op.results[0])
    plain = (
        dtype == np.float32
        and d.output_feature == len(shape_of(c.op.results[0])) - 1
        and d.output_batch == 0
    )
    tail = Tail.behind(program, c.op, weight.shape[3]) if plain else Tail((), (), (c.op,))
    row_scale = evaluate(program, x["scale"])
    static = row_scale is not None and row_scale.size == 1
    with at(tail.last):
        codes = _input(x["codes"], d, window, point)
        steps = (Dequantize(per_row=not static), *tail.steps)
        kernel = _kernel(isa, codes, weight, window, groups, steps)
        packed = kernel.pack(weight, zero_point=point)
        if packed["weights"].nbytes > MOST_PACKED * max(weight.nbytes, SMALL):
            raise NoKernel("its packed filter would take several times the room")
        if static:
            assert row_scale is not None
            scale = (row_scale.reshape(-1)[0] * scale).astype(np.float32)
        operands = [codes, program.add_weight(f"{c.name}:packed", packed["weights"])]
        operands.append(program.add_weight(f"{c.name}:init", packed["init"]))
        columns = kernel.pad_columns(scale)
        operands.append(program.add_weight(f"{c.name}:column_scale", columns))
        if not static:
            per_sample = OPS.reshape(x["scale"], [math.prod(shape_of(x["scale"]))])
            operands.append(OPS.broadcast(per_sample, [shape_of(codes)[0]], [0]))
        operands += tail.values(program, c.name, kernel.pad_columns)
        (result,) = call_kernel(program, kernel, operands, c.name)
        value = _output(result, kernel, d, tail.shape)
        tail.replace(value if tail.steps else OPS.convert(value, dtype))
    return kernel.name


def _layout(c: Contract) -> Layout:
    return Layout.of(Attributes(c.attributes))


def _filter(
    enc: Any, parts: dict[str, np.ndarray], d: Layout, window: Window
) -> tuple[np.ndarray, np.ndarray]:
    """HWIO codes, reversed where the window is, and the scale of every filter."""
    fmt = get_format(enc.format)
    assert isinstance(fmt, Affine)
    codes = np.asarray(fmt.codes(NUMPY, parts, enc))
    codes = codes.transpose(*d.kernel_spatial, d.kernel_in, d.kernel_out)
    if len(d.kernel_spatial) == 1:
        codes = codes[None]
    flips = tuple(axis for axis, back in enumerate(window.reversal) if back)
    scale = np.asarray(fmt.scale(NUMPY, parts, enc))
    if math.prod(scale.shape) not in (1, scale.shape[d.kernel_out]):
        raise NoKernel("the filter has blocks along a contracted axis")
    wide = np.broadcast_to(scale.reshape(-1), [codes.shape[3]])
    return np.ascontiguousarray(np.flip(codes, flips)), wide.astype(np.float32)


def _input(codes: ir.Value, d: Layout, window: Window, point: int) -> ir.Value:
    """[B, H, W, C] with its padding written out as zero points."""
    x = OPS.transpose(codes, [d.input_batch, *d.input_spatial, d.input_feature])
    if len(d.input_spatial) == 1:
        batch, width, channels = shape_of(x)
        x = OPS.reshape(x, [batch, 1, width, channels])
    low = [0, *(p[0] for p in window.padding), 0]
    high = [0, *(p[1] for p in window.padding), 0]
    interior = [0, *window.interior, 0]
    if not any(low + high + interior):
        return x
    return pad(x, OPS.constant(np.asarray(point, np.int8)), low, high, interior)


def _kernel(
    isa: str, codes: ir.Value, weight: np.ndarray, window: Window, groups: int, steps: Any
) -> ConvolutionKernel:
    batch, height, width, channels = shape_of(codes)
    spans = [d * (k - 1) + 1 for d, k in zip(window.dilations, weight.shape[:2], strict=True)]
    if min(batch, channels, weight.shape[3], height - spans[0] + 1, width - spans[1] + 1) < 1:
        raise NoKernel("an empty convolution")
    return ConvolutionKernel(
        isa=isa,
        batch=batch,
        height=height,
        width=width,
        channels=channels,
        filters=weight.shape[3],
        window=(weight.shape[0], weight.shape[1]),
        strides=window.strides,
        dilations=window.dilations,
        groups=groups,
        epilogue=steps,
    )


def _output(
    result: ir.Value, kernel: ConvolutionKernel, d: Layout, shape: tuple[int, ...]
) -> ir.Value:
    """[pixels, F] in the layout of the op's result."""
    spatial = [a for a in range(len(shape)) if a not in (d.output_batch, d.output_feature)]
    order = [d.output_batch, *spatial, d.output_feature]
    value = OPS.reshape(result, [shape[a] for a in order])
    inverse = [order.index(a) for a in range(len(shape))]
    return OPS.transpose(value, inverse) if inverse != sorted(inverse) else value
