"""Movements and pools of codes, on the quantized type that they have."""

from __future__ import annotations

from jq.ir import Op, Program, ir
from jq.ir.ops.lookup import of_one_type, rule_named
from jq.ir.quantized.computed import is_computed
from jq.ir.quantized.kinds import CAST, around_zero, cast, element_of, per_tensor, with_element
from jq.ir.quantized.write import TYPED, checked, is_constant, text
from jq.ir.values import kind_of, maker


def on_codes(program: Program, op: Op) -> ir.Value | None:
    """An op on integers, cast from one quantized type, in that type; then the integers."""
    places = of_one_type(op)
    if not places or len(op.operation.results) != 1:
        return None
    operands = list(op.operation.operands)
    first = maker(operands[places[0]], CAST)
    if first is None or not _is_same(op, first.operation.operands[0].type):
        return None
    element = element_of(first.operation.operands[0])
    for i in places:
        codes = _as_codes(program, operands[i], element)
        if codes is None:
            return None
        operands[i] = codes
    plain = op.operation.results[0].type
    made = checked(op, with_element(plain, element), operands, **{TYPED: text("codes")})
    if made is None:
        return None
    if not is_computed(made.owner):
        made.owner.erase()
        return None
    return cast(made, plain)


def _is_same(op: Op, kind: ir.Type) -> bool:
    """True if an op on integers is the same op in a quantized type."""
    rule = rule_named(kind_of(op))
    fits = rule is None or not rule.around_zero or around_zero(kind)
    return per_tensor(kind) and fits


def _as_codes(program: Program, value: ir.Value, element: ir.Type) -> ir.Value | None:
    """Integers as codes of a type: what has it, and constants."""
    source = maker(value, CAST)
    if source is not None:
        found = source.operation.operands[0]
        return found if element_of(found) == element else None
    if not is_constant(program, value):
        return None
    return cast(value, with_element(value.type, element))
