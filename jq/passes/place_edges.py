"""Every edge becomes a quantize and a dequantize with the calibrated parameters.

%e = composite "jq.edge" %x
->
%q = composite "jq.quantize" %x, %scale, %zero_point
%e = composite "jq.dequantize" %q, %scale, %zero_point
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.errors import UserError
from jq.ir import Program, at, dtype_of, ir
from jq.ir.build import constant, replace
from jq.ir.markers import dequantize, edge_name, quantize
from jq.passes.base import Pass, PassContext
from jq.plan import TensorPlan


@dataclass(frozen=True)
class PlaceEdges(Pass):
    name = "place-edges"

    def run(self, program: Program, cx: PassContext) -> bool:
        edges = [(op, name) for op in program.walk() if (name := edge_name(op))]
        for op, name in edges:
            if name not in cx.plan.edges:
                raise UserError(
                    "no calibrated range: the calibration data did not reach this tensor",
                    op=name,
                    hint="give data that does, or use pipeline int8-dynamic",
                )
            with at(op):
                value = quantized(program, op.operands[0], cx.plan.edges[name], name)
            replace(op, [value])
        return bool(edges)


def quantized(program: Program, value: ir.Value, p: TensorPlan, name: str) -> ir.Value:
    """`value` through the codes of a static plan, at the current insertion point."""
    assert p.parameters is not None
    (scale, zero), grid = p.parameters, p.encoding.grid
    given: dict[str, Any] = {"scale": constant(np.full(grid, scale, np.float32))}
    if zero is not None:
        given["zero_point"] = constant(np.full(grid, zero, np.int32))
    parts = quantize(program, value, p.encoding, given, tensor=name)
    return dequantize(program, p.encoding, parts, dtype_of(value), tensor=name)
