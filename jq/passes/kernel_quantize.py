"""Activations are quantized by a kernel, one pass over each row.

    composite "jq.quantize_dynamic" %x  ->  call @jq_quantize_rows(%x)

Fires on int8, one scale a row of the last axis (or one in all, when static).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.ir import Program, at, ir, shape_of
from jq.ir.build import replace
from jq.ir.constants import evaluate
from jq.ir.markers import QUANTIZE, QUANTIZE_DYNAMIC, Marker, match
from jq.kernels import QuantizeRows, RowQuantization
from jq.kernels.quantization import ASYMMETRIC, STATIC, SYMMETRIC
from jq.passes._kernel import OPS, call_kernel, isa_of, rows_and_columns
from jq.passes.base import Pass, PassContext


@dataclass(frozen=True)
class KernelQuantize(Pass):
    name = "kernel-quantize"

    def run(self, program: Program, cx: PassContext) -> bool:
        isa, changed = isa_of(cx.target), False
        for op in program.walk() if isa else ():
            marker = match(op, QUANTIZE, QUANTIZE_DYNAMIC)
            scheme = marker and row_scheme(program, marker)
            if isa and marker and scheme:
                with at(op):
                    results = _quantize(program, marker, scheme, isa)
                replace(op, results)
                changed = True
        return changed


def row_scheme(program: Program, marker: Marker) -> RowQuantization | None:
    """The kernel's name for an encoding of rows; None when it has none."""
    enc = marker.encoding
    narrow = enc.option("divisor", "absmax/127") == "absmax/127"
    if enc.format != "int8" or not enc.shape or 0 in enc.shape:
        return None
    if marker.kind == QUANTIZE:
        zero = marker.parts.get("zero_point")
        point = 0 if zero is None else evaluate(program, zero)
        if point is None or any(enc.block):
            return None
        return RowQuantization(
            STATIC, int(np.asarray(point).reshape(-1)[0]), narrow and zero is None
        )
    rows = all(b == 1 or n == 1 for b, n in zip(enc.block[:-1], enc.shape[:-1], strict=True))
    if not rows or (enc.block[-1] and enc.shape[-1] > 1):
        return None
    return RowQuantization(ASYMMETRIC if enc.scheme == "asymmetric" else SYMMETRIC, narrow=narrow)


def _quantize(
    program: Program, marker: Marker, scheme: RowQuantization, isa: str
) -> list[ir.Value]:
    x = OPS.convert(marker.op.operands[0], np.float32)  # formats compute in float32
    m, k = rows_and_columns(shape_of(x))
    kernel = QuantizeRows(isa=isa, m=m, k=k, scheme=scheme)
    operands = [x] if scheme.dynamic else [x, marker.parts["scale"]]
    results = call_kernel(program, kernel, operands, f"{marker.tensor}/quantize")
    wanted = [shape_of(r) for r in marker.op.operation.results]
    return [OPS.reshape(v, shape) for v, shape in zip(results, wanted, strict=True)]
