"""Sums of 32 bits: of products, with terms that are added, and bounded where they become codes."""

import numpy as np

from jq.ir import Op, Program, ir, maker, only_user
from jq.ir.build import plain
from jq.ir.markers import DEQUANTIZE, encoding_of
from jq.ir.ops import Contraction, contraction, rule_named
from jq.ir.quantized import types


def on_sums(program: Program, op: Op) -> ir.Value | None:
    """A sum with numbers that are sums of 32 bits already, in their type; then the floats."""
    rule = rule_named(op.operation.name)
    if rule is None or not rule.sums:
        return None
    sums = [types.sums_of(v) for v in op.operands]
    kind = next((v.type for v in sums if v is not None), None)
    if kind is None:
        return None
    pairs = zip(op.operands, sums, strict=True)
    operands = [v for pair in pairs if (v := in_steps(program, *pair, kind))]
    if len(operands) < len(sums):
        return None
    made = types.checked(op, kind, operands, **{types.TYPED: "sum"})
    return None if made is None else types.floats(made)


def in_steps(
    program: Program, value: ir.Value, sums: ir.Value | None, kind: ir.Type
) -> ir.Value | None:
    """A float value in the type of sums; None for one that is computed."""
    if sums is not None:
        return sums if sums.type == kind else _quantized(sums, kind)
    codes = maker(value, types.UNIFORM_DEQUANTIZE)
    if codes is not None:
        return _quantized(codes.operands[0], kind, **{DEQUANTIZE: codes.attributes[DEQUANTIZE]})
    return _quantized(value, kind) if types.is_constant(program, value) else None


def _quantized(value: ir.Value, kind: ir.Type, **attributes: ir.Attribute) -> ir.Value | None:
    """Numbers, or codes of another type, rounded to a type; None where StableHLO cannot."""
    given = {types.WIDE: ir.UnitAttr.get(), **attributes}
    return types.valid(ir.Operation.create(types.UNIFORM_QUANTIZE, [kind], [value], given))


def bounded(program: Program, op: Op) -> ir.Value | None:
    """The codes of sums, and bounds after them: rounding to codes keeps the order of numbers."""
    value, bounds = op.operands[0], list[tuple[Op, int]]()
    while (bound := maker(value)) is not None and only_user(value) is not None:
        index = _bounded(program, bound)
        if index is None:
            break
        bounds.append((bound, index))
        value = bound.operands[index]
    sums, kind = types.sums_of(value), op.results[0].type
    if not bounds and sums is None:
        return None
    result = types.checked(op, kind, [value if sums is None else sums])
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
    constant = [types.is_constant(program, v) for v in op.operands]
    return constant.index(False) if constant.count(False) == 1 else None


def _bound(program: Program, op: Op, index: int, codes: ir.Value) -> ir.Value | None:
    """A bound on codes in the place of one operand, with the codes of the others."""
    element = types.element_of(codes)
    values = [
        codes if i == index else in_steps(program, v, None, types.with_element(v.type, element))
        for i, v in enumerate(op.operands)
    ]
    known = [v for v in values if v is not None]
    if len(known) < len(values):
        return None
    return types.checked(op, codes.type, known, **{types.TYPED: "bound"})


def on_products(program: Program, op: Op) -> ir.Value | None:
    """The floats that the sums of 32 bits of a product of quantized operands are."""
    rule = contraction(op.operation.name)
    if rule is None or not rule.sums_products:
        return None
    makers = (maker(v, types.UNIFORM_DEQUANTIZE) for v in op.operands)
    sources = [source for source in makers if source and DEQUANTIZE in source.attributes]
    if len(sources) < len(op.operands):
        return None
    said = [ir.DictAttr(s.attributes[DEQUANTIZE]) for s in sources]
    kind = _kind(rule, op, said)
    if kind is None:
        return None
    operands = _of_one_width([s.operands[0] for s in sources], said)
    how = {types.TYPED: "product", types.SIDES: said}
    made = types.checked(op, kind, operands, **how)
    return None if made is None else types.floats(made)


def _of_one_width(operands: list[ir.Value], said: list[ir.DictAttr]) -> list[ir.Value]:
    """The operands, the narrower ones as the same codes of as many bits as the widest: StableHLO
    multiplies codes of one storage type alone."""
    widths = [types.storage_of(types.element_of(v)).width for v in operands]
    shifted = bool(_parameters(said[1])[1].any())
    bits = max(*widths, 16 if shifted else 0)
    return [
        v if width == bits else types.widened(v, bits, how, centred=shifted and i == 1)
        for i, (v, width, how) in enumerate(zip(operands, widths, said, strict=True))
    ]


def _kind(rule: Contraction, op: Op, said: list[ir.DictAttr]) -> ir.Type | None:
    """The type of the sums; None where they have none."""
    (left, _, left_axes), (right, zeros, axes) = map(_parameters, said)
    result = ir.RankedTensorType(op.results[0].type)
    bits = types.bits_of(encoding_of(said[1]))
    if left_axes or len(axes) > 1 or str(result.element_type) != "f32":
        return None
    if zeros.any() and (axes or bits > 8):
        return None
    axis = rule.result_axes(op, 1).get(axes[0]) if axes else None
    if axes and axis is None:
        return None
    steps = [f"{s!r}" for s in (left * right).tolist()]
    rest = f", {steps[0]}" if axis is None else f":{axis}, {{{', '.join(steps)}}}"
    element = ir.Type.parse(f"!quant.uniform<i32:f32{rest}>")
    return ir.RankedTensorType.get(result.shape, element, result.encoding)


def _parameters(said: ir.DictAttr) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Scales and zero points (flat), and the axes that they lie along."""
    enc = encoding_of(said)
    return *types.parameters(enc, plain(said["values"])), types.axes_of(enc)
