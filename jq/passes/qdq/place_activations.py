"""Quantizes, dequantizes and converts around ops, as the plan says."""

from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.ir import OPS, Op, Program, at, dtype_of, enclosing, ir, like, maker, replace, shape_of
from jq.ir.markers import DEQUANTIZE, dequantize, match, quantize, quantize_dynamic
from jq.ir.ops.dataflow import Encodings
from jq.ir.ops.lattice import Encoded
from jq.ir.ops.layout import Layout
from jq.ir.ops.lookup import rule_of
from jq.ir.quantized.edges import edge_name
from jq.ir.values import kind_of
from jq.passes.base import Pass, PassContext
from jq.passes.integer._values import static_parameters
from jq.passes.rewrite import Rewrite
from jq.planning.calibration.ranges import site
from jq.planning.decisions import TensorPlan
from jq.planning.operands import contractions, op_name


# Operands that the model quantizes itself become dequantizes of the codes that are computed.
#
#     pool (dequantize %q)   ->   dequantize (pool %q)         right after the pool
#
# What the ops between make of codes is what their rules say (`OpRule.carry`); what a loop carries
# or a branch gives is quantized again with the same parameters, which gives the codes that it had.
class Carrier:
    """Computes codes of values whose encoding is known, each once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.encodings = Encodings(program)
        self.known: dict[ir.Value, ir.Value | None] = {}

    def run(self, op: Op, index: int) -> bool:
        """Makes an operand of an op a dequantize; False where it is one, or cannot be."""
        value = op.operands[index]
        dequantized = self._dequantized(value)
        if dequantized is None or dequantized == value:
            return False
        op.operands[index] = dequantized
        return True

    def _dequantized(self, value: ir.Value) -> ir.Value | None:
        if match(value, DEQUANTIZE):
            return value
        if value not in self.known:
            state = self.encodings.of(value)
            self.known[value] = self._computed(value, state) if isinstance(state, Encoded) else None
        return self.known[value]

    def _computed(self, value: ir.Value, state: Encoded) -> ir.Value | None:
        op = maker(value)
        if op is None:
            with at(value.owner.operations[0]):
                return self._again(value, state)
        rule = rule_of(op)
        if rule is None:  # a loop or a branch
            with at(op, after=True):
                return self._again(value, state)
        floats = [self._dequantized(v) for v in op.operands]
        markers = [match(v, DEQUANTIZE) for v in floats]
        if all(m is None for m in markers):
            return None
        with at(op, after=True):
            return rule.carry(self.program, op, markers)

    def _again(self, value: ir.Value, state: Encoded) -> ir.Value | None:
        if state.scale is None:
            return None
        enc = state.encoding
        given = static_parameters(enc, state.scale, state.zero_point)
        parts = quantize(self.program, value, enc, given, tensor="carried")
        return dequantize(self.program, enc, parts, dtype_of(value), tensor="carried")


# Activations of the plan are quantized in front of the op that needs them.
#
#     %y = dot_general %x, %w
#     ->
#     %q:3 = composite "jq.quantize_dynamic" %x       // or jq.quantize with calibrated parameters
#     %d = composite "jq.dequantize" %q#0, %q#1, %q#2
#     %y = dot_general %d, %w
#
# Ops that read the same value with the same encoding share one quantize, but not across the
# branches of a conditional. An operand that is quantized in this way already is left as it is; what
# the model quantizes itself, further up, is read as the codes that ops between make of its codes.
class PlaceActivations(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        shared: dict[Any, ir.Value] = {}
        given = any(p.kind == "given" for d in cx.plan.ops for p in d.operands.values())
        carrier, changed = Carrier(program) if given else None, False
        for op, _ in list(contractions(program)):
            decision = cx.plan.by_name.get(op_name(op))
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
        return program.tidied(changed)


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


# Every edge becomes a quantize and a dequantize with the calibrated parameters.
#
# %e = composite "jq.edge" %x
# ->
# %q = composite "jq.quantize" %x, %scale, %zero_point
# %e = composite "jq.dequantize" %q, %scale, %zero_point
#
# An edge that only float ops read disappears.
class PlaceEdges(Rewrite):
    tidies = False

    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        if not (name := edge_name(op)):
            return None
        if site(name, 0) in cx.plan.unranged:
            what = "no calibrated range: the calibration data did not reach this tensor"
            raise UserError(what, op=name, hint="give data that does, or use pipeline int8-dynamic")
        value, planned = op.operands[0], cx.plan.edges.get(name)
        return [through_codes(program, op, value, planned, name) if planned else value]


# A contraction of floats is computed in the float type that the plan gives it.
#
#     dot_general %x, %w : f32  ->  dot_general (convert %x), (convert %w) : bf16 x bf16 -> f32
#
# Products are summed in float32. Ops that read the same value share one conversion; a weight is
# stored in that type. With `stored`, of weights that are quantized: what they decode to is rounded.
class PlaceFloatTypes(Pass):
    stored: bool = False

    def run(self, program: Program, cx: PassContext) -> bool:
        types = {
            p.name: "bfloat16" * p.halves if self.stored else p.float_type for p in cx.plan.ops
        }
        wanted = {name: np.dtype(kind) for name, kind in types.items() if kind}
        shared: dict[Any, ir.Value] = {}
        changed = False
        for op, rule in list(contractions(program)):
            dtype = wanted.get(op_name(op))
            if dtype is None:
                continue
            operands = list(op.operands)
            with at(op):
                for role in rule.roles(op):
                    value = operands[role.index]
                    key = (value, dtype, op.operation.block)
                    if key not in shared:
                        shared[key] = _in_type(program, value, dtype)
                    operands[role.index] = shared[key]
                result = op.results[0]
                total = dtype if len(rule.roles(op)) == 1 else np.dtype(np.float32)
                new = like(op, operands, shape_of(result), total)
                new = OPS.convert(new, dtype_of(result))
            replace(op, [new])
            changed = True
        for value, dtype, _ in shared:
            _round_sums(value, dtype)
        program.drop_dead()
        names = program.weights if changed else ()
        program.rename_weights({n: n.removesuffix(TYPED) for n in names if n.endswith(TYPED)})
        return changed


def _round_sums(value: ir.Value, dtype: np.dtype[Any]) -> None:
    """Gives the sums that read what a convolution reads its numbers: they are stored once."""
    readers = [use.owner for use in value.uses]
    typed = [r.results[0] for r in readers if kind_of(r) == "stablehlo.convert"]
    convolved = any(Layout.match(use.owner) for v in typed for use in v.uses)
    for op in readers if convolved else ():
        if kind_of(op) == "stablehlo.add":
            with at(op):
                rounded = OPS.convert(OPS.convert(value, dtype), dtype_of(value))
            op.operands[list(op.operands).index(value)] = rounded


TYPED = ":typed"


def _in_type(program: Program, value: ir.Value, dtype: np.dtype[Any]) -> ir.Value:
    """A value in a float type; of a weight, one beside it that may take its name."""
    name = program.weight_name(value)
    if name is None or dtype_of(value) == dtype:
        return OPS.convert(value, dtype)
    return program.add_weight(f"{name}{TYPED}", np.asarray(program.weights[name]).astype(dtype))
