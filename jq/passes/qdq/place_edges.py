"""Every edge becomes a quantize and a dequantize with the calibrated parameters.

%e = composite "jq.edge" %x
->
%q = composite "jq.quantize" %x, %scale, %zero_point
%e = composite "jq.dequantize" %q, %scale, %zero_point

An edge that only float ops read disappears.
"""

from dataclasses import dataclass

from jq.base.errors import UserError
from jq.ir import Program
from jq.ir.build import replace
from jq.ir.quantized.edges import edge_name
from jq.passes.base import Pass, PassContext
from jq.passes.qdq.place_activations import through_codes
from jq.planning.calibration.ranges import site


@dataclass(frozen=True)
class PlaceEdges(Pass):
    name = "place-edges"

    def run(self, program: Program, cx: PassContext) -> bool:
        edges = [(op, name) for op in program.walk() if (name := edge_name(op))]
        for op, name in edges:
            if site(name, 0) in cx.plan.unranged:
                raise UserError(
                    "no calibrated range: the calibration data did not reach this tensor",
                    op=name,
                    hint="give data that does, or use pipeline int8-dynamic",
                )
            value = op.operands[0]
            if name in cx.plan.edges:
                value = through_codes(program, op, value, cx.plan.edges[name], name)
            replace(op, [value])
        return bool(edges)
