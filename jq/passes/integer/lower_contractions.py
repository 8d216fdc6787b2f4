"""Contractions of dequantized tensors become integer contractions with an explicit rescale.

    dot_general(dequantize(a), dequantize(b))
    -> composite "jq.contract" %a.codes, %a.scale, %b.codes, %b.scale
       whose decomposition is convert(dot_general(a.codes, b.codes)) * (a.scale * b.scale)

The op's own rule says how; what it declines stays float, on the dequantized values. One marker
holds the whole chain, so that a target can put a kernel in its place."""

from functools import partial

import numpy as np

from jq.base.errors import UserError
from jq.formats import get_format, is_affine, unpacked
from jq.ir import Op, Program, evaluate, ir, known_parts
from jq.ir.contract import contract
from jq.ir.markers import DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC, Marker, match
from jq.ir.ops.base import Contraction
from jq.ir.ops.lookup import rule_of
from jq.ir.ops.movement import plain
from jq.passes.base import PassContext
from jq.passes.rewrite import Rewrite
from jq.planning.accumulators import LIMIT, largest_code, largest_sum, worst_case
from jq.planning.decisions import OpPlan
from jq.planning.encodings import code_bits
from jq.planning.operands import op_name


class LowerContractions(Rewrite):
    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        rule = rule_of(op)
        if not isinstance(rule, Contraction):
            return None
        value = _lower(program, op, rule, cx.plan.by_name.get(op_name(op)))
        return None if value is None else [value]


def _lower(program: Program, op: Op, rule: Contraction, plan: OpPlan | None) -> ir.Value | None:
    """The plan has the last word: a model may bring quantized what the target cannot multiply."""
    roles = rule.roles(op)
    planned = range(len(op.operands)) if plan is None else plan.operands
    read = ((r.index, op.operands[r.index]) for r in roles)
    markers = [match(v, DEQUANTIZE) if i in planned else None for i, v in read]
    if not any(markers):
        return None
    if plan is not None and plan.decision == "integer":
        _prove(program, op, rule, plan)
    if len(roles) < 2:  # a lookup: a dequantize of the rows that are read
        return rule.lower(program, op, markers)

    # What has no integers is multiplied as floats, which a function of codes would not see.
    sides = [m if m and get_format(m.encoding.format).integer_bits else None for m in markers]
    return contract(program, op, sides, partial(rule.lower, program)) if any(sides) else None


def _prove(program: Program, op: Op, rule: Contraction, plan: OpPlan) -> None:
    """Refuses weights whose codes, as they were chosen in the end, can overflow the accumulator.

    Planning has looked at plain rounding."""
    sides = list(plan.operands.values())
    bits = [code_bits(p.encoding) for p in sides]
    if max(bits) > 8 or worst_case(rule.terms(op), sides) <= LIMIT:
        return
    for role in rule.roles(op):
        marker = match(op.operands[role.index], DEQUANTIZE)
        if marker is None or not is_affine(marker.encoding.format):
            continue
        if (parts := known_parts(program, marker.parts)) is None:
            continue
        other = next(p for i, p in plan.operands.items() if i != role.index)
        bound = largest_sum(parts, marker.encoding, role.contracted) * largest_code(other)
        if bound > LIMIT:
            what = f"a sum can reach {bound}, more than an int32 accumulator holds"
            raise UserError(what, op=plan.name, hint="keep it float by a rule")


# A quantize of a dequantize with the same parameters is nothing.
#
#     quantize (dequantize %q, %s, %z), %s, %z    ->  %q
#     quantize_dynamic (dequantize %q, %s)        ->  %q, %s      MX formats
#
# Fires in any granularity, where both parameters are the same numbers; with those of the data,
# where the format leaves what it has rounded as it is. Codes that change their parameters stay as
# they are: float arithmetic rounds them once, and `lower-regions` has the integer form for devices
# without a float unit.
class FoldQuantize(Rewrite):
    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        marker = match(op, QUANTIZE, QUANTIZE_DYNAMIC)
        inner = match(marker.op.operands[0], DEQUANTIZE) if marker else None
        if marker is None or inner is None:
            return None
        if marker.kind == QUANTIZE_DYNAMIC:
            # The same blocks are rounded once more, to what they are.
            alike = unpacked(inner.encoding) == marker.encoding and plain(inner)
            kept = alike and get_format(marker.encoding.format).idempotent
            return [inner.parts[name] for name in marker.parts] if kept else None
        return [inner.parts["codes"]] if _same(program, marker, inner) else None


def _same(program: Program, outer: Marker, inner: Marker) -> bool:
    """True if quantizing gives back the codes: same format, and the same numbers."""
    if unpacked(inner.encoding) != outer.encoding:
        return False
    for part in ("scale", "zero_point"):
        a, b = outer.parts.get(part), inner.parts.get(part)
        if a is None or b is None:
            if a is not b:
                return False
        elif a != b:
            first, second = (evaluate(program, v) for v in (a, b))
            if first is None or second is None or not np.array_equal(first, second):
                return False
    return True
