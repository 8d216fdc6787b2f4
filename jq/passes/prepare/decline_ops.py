"""Says on each op that the target's device cannot compute on codes why that is so.

    %r = reverse %x        ->        %r = reverse %x {jq.declined = {reason = ..., help = ...}}

With `by_shape` where it exceeds a limit: then no function of several ops computes it, either.
By the limits and functions of the target file alone (`jq.planning.limits`). Ops on weights and
constants are left out: they are computed before the program reaches the device. Contractions are
left to the plan, which asks the same limits, but for lookups, which also move codes.

Softmax, a normalization or attention that the device cannot compute is refused as one function,
since that is what was written, not the ops that it consists of."""

from jq.ir import Program, decisions, ir, kind_of, maker, shape_of
from jq.ir.affine import is_constant, step
from jq.ir.ops import Contraction, rule_of
from jq.ir.slicing import between
from jq.passes.base import Pass, PassContext
from jq.passes.functions import as_normalization
from jq.passes.integer._ops import as_softmax, is_float
from jq.passes.prepare._compositions import Composition, compositions
from jq.planning.limits import refusal
from jq.planning.operands import op_name
from jq.target.device_table import Device
from jq.target.target import Target

OUTSIDE = "end the model in front of it, and compute it and what follows outside of the device"


class DeclineOps(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        changed, device = False, cx.target.device
        computed = set[ir.Value](list(program.body.arguments)[: len(program.inputs)])
        for op in program.walk():
            results = list(op.results)
            inside = op.operation.parent.name != "func.func"
            if not inside and not any(v in computed for v in op.operands):
                continue
            computed.update(results)
            floats = len(results) == 1 and is_float(results[0])
            if (isinstance(rule := rule_of(op), Contraction) and rule.op != "gather") or not floats:
                continue
            # Constants that it is divided by become the factor of a rescale.
            scales = kind_of(op) == "stablehlo.divide" and "multiply" in (device.ops or ())
            if scales and step(program, op, op.operands[0]) is not None:
                continue
            if (found := refusal(op, cx.target)) is not None:
                decisions.decline(op, found.reason, found.help, by_shape=found.by_shape)
                changed = True
        for one in compositions(program):
            if (reason := _lacking(program, one, cx.target)) is not None:
                name = op_name(maker(one.result) or one.ops[-1])
                said = decisions.Function(one.function, name, reason, OUTSIDE)
                decisions.mark_function(one.ops, said)
                changed = True
        return changed


def _lacking(program: Program, one: Composition, target: Target) -> str | None:
    """The reason why a device cannot compute a function; None where it can, in one or op by op."""
    device, inside = target.device, [op for op in one.ops if decisions.declined(op)]
    if shapes := [op for op in inside if decisions.declined_by_shape(op)]:
        return f"{one.function}: {(decisions.declined(shapes[0]) or ('',))[0]}"
    if one.function == "attention":
        parts = (decisions.function_of(op) for op in one.ops)
        reason = next((part.reason for part in parts if part is not None), None)
        if device.multiplies_weights_alone:
            return (
                f"target {target.name} multiplies by weights alone, and attention multiplies"
                " tensors that are both computed"
            )
        return reason and f"attention: {reason}"
    whole = _is_whole(program, one)
    if one.function not in device.functions and (inside or whole or _divides(program, one, device)):
        return f"target {target.name} has no {one.function} on quantized values"
    if not whole and (inside or _divides(program, one, device)):
        return f"target {target.name} has {one.function} along one axis alone, the last one"
    return None


def _is_whole(program: Program, one: Composition) -> bool:
    """True for what a device computes as one function."""
    cut = between(program, one.source, result=one.result)
    if cut is None or shape_of(cut.result) != shape_of(cut.source):
        return False
    unit = as_normalization(cut, shape_of(cut.source), unit=True) if shape_of(cut.source) else None
    return unit is not None or as_softmax(cut) is not None


def _divides(program: Program, one: Composition, device: Device) -> bool:
    """True where it divides two tensors, which the device cannot."""
    divides = [op for op in one.ops if kind_of(op) == "stablehlo.divide"]
    computed = [op for op in divides if not is_constant(program, op.operands[1])]
    return bool(computed) and "quotient" not in device.functions
