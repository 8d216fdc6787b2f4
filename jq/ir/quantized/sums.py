"""Terms that are added to sums of 32 bits, and bounds of the sums where they become codes."""

from jq.ir import Op, Program, ir
from jq.ir.markers import DEQUANTIZE
from jq.ir.ops.lookup import rule_named
from jq.ir.quantized.kinds import UNIFORM_DEQUANTIZE, UNIFORM_QUANTIZE, element_of, with_element
from jq.ir.quantized.write import TYPED, WIDE, checked, floats, is_constant, sums_of, text
from jq.ir.values import maker, only_user


def on_sums(program: Program, op: Op) -> ir.Value | None:
    """A sum with numbers that are sums of 32 bits already, in their type; then the floats."""
    rule = rule_named(op.operation.name)
    if rule is None or not rule.sums:
        return None
    sums = [sums_of(v) for v in op.operands]
    kind = next((v.type for v in sums if v is not None), None)
    if kind is None:
        return None
    pairs = zip(op.operands, sums, strict=True)
    operands = [v for pair in pairs if (v := in_steps(program, *pair, kind))]
    if len(operands) < len(sums):
        return None
    made = checked(op, kind, operands, **{TYPED: text("sum")})
    return None if made is None else floats(made)


def in_steps(
    program: Program, value: ir.Value, sums: ir.Value | None, kind: ir.Type
) -> ir.Value | None:
    """A float value in the type of sums; None for one that is computed."""
    if sums is not None:
        return sums if sums.type == kind else _quantized(sums, kind)
    codes = maker(value, UNIFORM_DEQUANTIZE)
    if codes is not None:
        said = codes.attributes[DEQUANTIZE]
        return _quantized(codes.operands[0], kind, **{DEQUANTIZE: said})
    return _quantized(value, kind) if is_constant(program, value) else None


def _quantized(value: ir.Value, kind: ir.Type, **attributes: ir.Attribute) -> ir.Value | None:
    """Numbers, or codes of another type, rounded to a type; None where StableHLO cannot."""
    made = ir.Operation.create(
        UNIFORM_QUANTIZE,
        results=[kind],
        operands=[value],
        attributes={WIDE: ir.UnitAttr.get(), **attributes},
    )
    try:
        made.verify()
    except ir.MLIRError:
        made.erase()
        return None
    return made.result


def bounded(program: Program, op: Op) -> ir.Value | None:
    """The codes of sums, and bounds after them: rounding to codes keeps the order of numbers."""
    value, bounds = op.operands[0], list[tuple[Op, int]]()
    while (bound := maker(value)) is not None and only_user(value) is not None:
        index = _bounded(program, bound)
        if index is None:
            break
        bounds.append((bound, index))
        value = bound.operands[index]
    sums, kind = sums_of(value), op.results[0].type
    if not bounds and sums is None:
        return None
    result = checked(op, kind, [value if sums is None else sums])
    for bound, index in reversed(bounds):
        if result is None:
            return None
        result = _bound(program, bound, index, result)
    return result


def _bounded(program: Program, op: Op) -> int | None:
    """Number of the operand that the op's constants bound, or None."""
    rule = rule_named(op.operation.name)
    if rule is None or not rule.limits:
        return None
    constant = [is_constant(program, v) for v in op.operands]
    return constant.index(False) if constant.count(False) == 1 else None


def _bound(program: Program, op: Op, index: int, codes: ir.Value) -> ir.Value | None:
    """A bound on codes in the place of one operand, with the codes of the others."""
    values = [
        codes if i == index else in_steps(program, v, None, with_element(v.type, element_of(codes)))
        for i, v in enumerate(op.operands)
    ]
    known = [v for v in values if v is not None]
    if len(known) < len(values):
        return None
    return checked(op, codes.type, known, **{TYPED: text("bound")})
