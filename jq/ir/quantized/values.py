"""Quantized types on the values between ops, not at the edges alone.

    %d = uniform_dequantize %q                   // !quant.uniform<i8:f32, 0.1:3>
    %y = convolution %d, %w : f32
    %z = maximum (add %y, %bias), 0
    %r = uniform_quantize %z
    ->
    %y = convolution %q, %w : !quant.uniform<i32:f32:3, {...}>
    %z = uniform_quantize (add %y, (uniform_quantize %bias))     // i32 -> i8
    %r = maximum %z, (uniform_quantize 0)

A product has the type of its exact sums: 32 bits, with the product of both scales. What is added
to it is a number of that type, off by half such a step; a number that multiplies it goes into the
scale. Bounds follow the quantize, which keeps the order of numbers. Movements and pools of codes
carry the type of the codes. What an op does to the types of its operands its rule says
(`jq/ir/ops`): `sums_products`, `sums`, `factor`, `limits`, `of_one_type`.

Every op that is written so says what it was, and `open_values` finds it again: a program that is
read back is the one that was written, with the numbers that were added as they were."""

import re
from collections.abc import Callable

import numpy as np

from jq.ir import Op, Program, func, ir, kind_of, maker, parse_module, run_passes
from jq.ir.affine import constant_of
from jq.ir.build import copied
from jq.ir.markers import DEQUANTIZE
from jq.ir.mlir_context import at
from jq.ir.ops.lookup import of_one_type, rule_named
from jq.ir.quantized import types
from jq.ir.quantized.sums import bounded, in_steps, on_products, on_sums


def carry_types(program: Program) -> None:
    """Rewrites in place every op that StableHLO has for the types of its operands."""
    for op in types.outside(program.walk()):
        with at(op):
            if op.operation.name == types.UNIFORM_QUANTIZE:
                made = None if types.WIDE in op.attributes else bounded(program, op)
            else:
                made = next((found for way in WAYS if (found := way(program, op))), None)
            if made:
                op.results[0].replace_all_uses_with(made)
                op.operation.erase()
    program.drop_dead()


def on_codes(program: Program, op: Op) -> ir.Value | None:
    """An op on integers, cast from one quantized type, in that type; then the integers."""
    places = of_one_type(op)
    if not places or len(op.results) != 1:
        return None
    operands = list(op.operands)
    first = maker(operands[places[0]], types.CAST)
    if first is None or not _is_same(op, first.operands[0].type):
        return None
    element = types.element_of(first.operands[0])
    for i in places:
        codes = _as_codes(program, operands[i], element)
        if codes is None:
            return None
        operands[i] = codes
    plain = op.results[0].type
    made = types.checked(op, types.with_element(plain, element), operands, **{types.TYPED: "codes"})
    if made is None:
        return None
    if not is_computed(made.owner):
        made.owner.erase()
        return None
    return types.cast(made, plain)


def _is_same(op: Op, kind: ir.Type) -> bool:
    """True if an op on integers is the same op in a quantized type."""
    rule = rule_named(kind_of(op))
    fits = rule is None or not rule.around_zero or types.around_zero(kind)
    return types.per_tensor(kind) and fits


def _as_codes(program: Program, value: ir.Value, element: ir.Type) -> ir.Value | None:
    """Integers as codes of a type: what has it, and constants."""
    source = maker(value, types.CAST)
    if source is not None:
        found = source.operands[0]
        return found if types.element_of(found) == element else None
    if not types.is_constant(program, value):
        return None
    return types.cast(value, types.with_element(value.type, element))


def on_factors(program: Program, op: Op) -> ir.Value | None:
    """A product with one positive number, or a quotient by one, in 32 bits; then the floats.

    StableHLO multiplies types with one scale for the whole tensor alone."""
    rule = rule_named(op.operation.name)
    found = None if rule is None else rule.factor(program, op)
    if found is None or found[1].size != 1 or not found[1].reshape(()) > 0:
        return None
    index, factor = found
    value, by = op.operands[index], op.operands[1 - index]
    number = constant_of(program, by)
    codes = _in_32_bits(value)
    if codes is None or number is None or not types.per_tensor(codes.type):
        return None
    scale, zero = re.findall(r", ([^:>]+)(:-?\d+)?>", str(types.element_of(codes)))[0]
    product = float(np.float64(scale) * np.float64(factor.reshape(())))
    kind = ir.Type.parse(f"!quant.uniform<i32:f32, {product!r}{zero}>")
    one = ir.Type.parse(f"!quant.uniform<i32:f32, {float(number.reshape(()))!r}>")
    step = in_steps(program, by, None, types.with_element(by.type, one))
    if step is None:
        return None
    operands = [codes, step] if index == 0 else [step, codes]
    whole = types.with_element(value.type, kind)
    made = types.checked(op, whole, operands, **{types.TYPED: "factor"})
    return None if made is None or not is_computed(made.owner) else types.floats(made)


def _in_32_bits(value: ir.Value) -> ir.Value | None:
    """The sums or the codes that a float value is, in 32 bits."""
    if (sums := types.sums_of(value)) is not None:
        return sums
    codes = maker(value, types.UNIFORM_DEQUANTIZE)
    if codes is None or DEQUANTIZE not in codes.attributes:
        return None
    source, said = codes.operands[0], codes.attributes[DEQUANTIZE]
    return types.widened(source, 32, said, centred=False) if types.per_tensor(source.type) else None


WAYS: tuple[Callable[[Program, Op], ir.Value | None], ...] = (
    on_products,
    on_sums,
    on_factors,
    on_codes,
)


_KNOWN: dict[str, bool] = {}


def is_computed(op: Op) -> bool:
    """True if StableHLO's own passes write an op of this name as ops on integers."""
    name = op.operation.name
    if name not in _KNOWN:
        _KNOWN[name] = _opens(op)
    return _KNOWN[name]


def _opens(op: Op) -> bool:
    module = parse_module("module {}")
    arguments = [v.type for v in op.operands]
    results = [v.type for v in op.results]
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("main", (arguments, results))
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        func.ReturnOp(list(copied(op, list(block.arguments)).results))
    try:
        run_passes(module, "func.func(stablehlo-legalize-quant-to-math)")
    except ir.MLIRError:
        return False
    return True
