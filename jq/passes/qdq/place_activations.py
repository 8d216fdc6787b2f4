"""Activations of the plan are quantized in front of the op that needs them.

    %y = dot_general %x, %w
    ->
    %q:3 = composite "jq.quantize_dynamic" %x       // or jq.quantize with calibrated parameters
    %d = composite "jq.dequantize" %q#0, %q#1, %q#2
    %y = dot_general %d, %w

Ops that read the same value with the same encoding share one quantize, but not across the branches
of a conditional. An operand that is quantized in this way already is left as it is; what the model
quantizes itself, further up, is read as the codes that ops between make of its codes.
"""

from dataclasses import dataclass
from typing import Any

from jq.ir import Op, Program, at, dtype_of, enclosing, ir
from jq.ir.markers import DEQUANTIZE, dequantize, match, quantize, quantize_dynamic
from jq.passes.base import Pass, PassContext
from jq.passes.integer._values import static_parameters
from jq.passes.qdq._carrier import Carrier
from jq.planning.decisions import TensorPlan
from jq.planning.operands import contractions, op_name


@dataclass(frozen=True)
class PlaceActivations(Pass):
    name = "place-activations"

    def run(self, program: Program, cx: PassContext) -> bool:
        plans = {op.name: op for op in cx.plan.ops}
        shared: dict[Any, ir.Value] = {}
        given = any(p.kind == "given" for d in cx.plan.ops for p in d.operands.values())
        carrier, changed = Carrier(program) if given else None, False
        for op, _ in list(contractions(program)):
            decision = plans.get(op_name(op))
            for index, p in (decision.operands if decision else {}).items():
                value = op.operands[index]
                if p.kind == "weight":
                    continue
                if p.kind == "given":
                    changed |= carrier is not None and carrier.run(op, index)
                    continue
                if (edge := match(value, DEQUANTIZE)) and edge.encoding == p.encoding:
                    continue
                key = (value, p.encoding, p.parameters)
                placed = next((v for b in enclosing(op) if (v := shared.get((b, *key)))), None)
                if placed is None:
                    placed = through_codes(program, op, value, p, f"{op_name(op)}:{index}")
                    shared[op.operation.block, *key] = placed
                op.operands[index] = placed
                changed = True
        program.drop_dead()
        return changed


def through_codes(program: Program, op: Op, value: ir.Value, p: TensorPlan, name: str) -> ir.Value:
    """`value` through the codes of its plan, in front of `op`."""
    with at(op):
        if p.kind == "dynamic":
            parts = quantize_dynamic(program, value, p.encoding, tensor=name)
        else:
            assert p.parameters is not None
            given = static_parameters(p.encoding, *p.parameters)
            parts = quantize(program, value, p.encoding, given, tensor=name)
        return dequantize(program, p.encoding, parts, dtype_of(value), tensor=name)
