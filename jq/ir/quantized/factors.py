"""A quantized value times a constant: its scale takes the factor."""

from __future__ import annotations

import re

import numpy as np

from jq.ir import Op, Program, ir
from jq.ir.affine import constant_of
from jq.ir.markers import DEQUANTIZE
from jq.ir.ops.lookup import rule_named
from jq.ir.quantized.computed import is_computed
from jq.ir.quantized.kinds import UNIFORM_DEQUANTIZE, element_of, per_tensor, with_element
from jq.ir.quantized.sums import in_steps
from jq.ir.quantized.write import TYPED, checked, floats, sums_of, text, widened
from jq.ir.values import maker


def on_factors(program: Program, op: Op) -> ir.Value | None:
    """A product with one positive number, or a quotient by one, in 32 bits; then the floats.

    StableHLO multiplies types with one scale for the whole tensor alone.
    """
    rule = rule_named(op.operation.name)
    found = None if rule is None else rule.factor(program, op)
    if found is None or found[1].size != 1 or not found[1].reshape(()) > 0:
        return None
    index, factor = found
    value, by = op.operation.operands[index], op.operation.operands[1 - index]
    number = constant_of(program, by)
    codes = _in_32_bits(value)
    if codes is None or number is None or not per_tensor(codes.type):
        return None
    scale, zero = re.findall(r", ([^:>]+)(:-?\d+)?>", str(element_of(codes)))[0]
    product = float(np.float64(scale) * np.float64(factor.reshape(())))
    kind = ir.Type.parse(f"!quant.uniform<i32:f32, {product!r}{zero}>")
    one = ir.Type.parse(f"!quant.uniform<i32:f32, {float(number.reshape(()))!r}>")
    step = in_steps(program, by, None, with_element(by.type, one))
    if step is None:
        return None
    operands = [codes, step] if index == 0 else [step, codes]
    made = checked(op, with_element(value.type, kind), operands, **{TYPED: text("factor")})
    if made is None or not is_computed(made.owner):
        return None
    return floats(made)


def _in_32_bits(value: ir.Value) -> ir.Value | None:
    """The sums or the codes that a float value is, in 32 bits."""
    if (sums := sums_of(value)) is not None:
        return sums
    codes = maker(value, UNIFORM_DEQUANTIZE)
    if codes is None or DEQUANTIZE not in codes.operation.attributes:
        return None
    source, said = codes.operation.operands[0], codes.operation.attributes[DEQUANTIZE]
    return widened(source, 32, said, centred=False) if per_tensor(source.type) else None
