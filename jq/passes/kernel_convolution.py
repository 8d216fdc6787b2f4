"""Convolutions of activations with a constant filter are computed by kernels.

    composite "jq.contract" %x.codes, ..., %w.codes, %w.scale             (convolution)
    [add bias] [activation] [add residual] [composite "jq.quantize"]
    ->
    call @jq_convolution(pad(%x.codes, zero point), %w.packed, %init, %scale, ...)

Fires on one or two spatial dimensions, int8 x int8, with zero points that are constant. Where
every filter reads one channel, and every channel has one filter: `Depthwise`. Instructions that
read codes as unsigned get them so (`kernel-views`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Program, at, dtype_of, shape_of
from jq.ir.constants import evaluate
from jq.ir.contract import match_contract
from jq.kernels import Convolution, Depthwise, Dequantize, get_isa
from jq.passes._convolution import Convolved
from jq.passes._kernel import OPS, NoKernel, call_kernel, isa_of
from jq.passes._tail import Tail
from jq.passes.base import Pass, PassContext


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
                cx.kernels[c.name] = _lower(program, Convolved.of(program, c), isa)
                changed = True
            except NoKernel as reason:
                cx.without_kernel[c.name] = str(reason)
        return changed


def _lower(program: Program, conv: Convolved, isa: str) -> str:
    """Replaces the contraction and what follows it by a call; the kernel's name."""
    c = conv.contract
    dtype = dtype_of(c.op.results[0])
    plain = dtype == np.float32 and conv.channels_last
    tail = Tail.behind(program, c.op, conv.filters) if plain else Tail((), (), (c.op,))
    _, parts = c.sides[0]
    row_scale = evaluate(program, parts["scale"])
    static = row_scale is not None and row_scale.size == 1
    scale = conv.scale
    if static:
        assert row_scale is not None
        scale = (row_scale.reshape(-1)[0] * scale).astype(np.float32)
    with at(tail.last):
        unsigned = get_isa(isa).dot.lhs_unsigned
        codes = conv.input(unsigned)
        shape = conv.shape(codes)
        steps = (Dequantize(per_row=not static), *tail.steps)
        kernel = _kernel(conv, {**shape, "isa": isa, "unsigned": unsigned, "epilogue": steps})
        weight = conv.weight[:, :, 0] if isinstance(kernel, Depthwise) else conv.weight
        packed = kernel.pack(weight, zero_point=conv.zero_point)
        operands = [codes, program.add_weight(f"{c.name}:packed", packed["weights"])]
        operands.append(program.add_weight(f"{c.name}:init", packed["init"]))
        columns = kernel.pad_columns(scale)
        operands.append(program.add_weight(f"{c.name}:column_scale", columns))
        if not static:
            per_sample = OPS.reshape(parts["scale"], [math.prod(shape_of(parts["scale"]))])
            operands.append(OPS.broadcast(per_sample, [shape_of(codes)[0]], [0]))
        operands += tail.values(program, c.name, kernel.pad_columns)
        (result,) = call_kernel(program, kernel, operands, c.name)
        value = conv.output(result, tail.shape)
        tail.replace(value if tail.steps else OPS.convert(value, dtype))
    return kernel.name


def _kernel(conv: Convolved, described: dict[str, Any]) -> Convolution | Depthwise:
    single = conv.groups == conv.filters == described["channels"]
    if single and conv.weight.shape[2] == 1 and conv.groups > 1:
        return Depthwise(**described)
    return Convolution(**described, filters=conv.filters, groups=conv.groups)
