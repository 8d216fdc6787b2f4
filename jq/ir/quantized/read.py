"""The markers of a module in which `jq/ir/quantized/markers.py` has written quantized types."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.formats import Encoding
from jq.ir import OPS, Op, Program, evaluate, ir, is_read, maker, stablehlo, tensor_type, walk
from jq.ir.build import attributes_of, create
from jq.ir.markers import DEQUANTIZE, QUANTIZE, dequantize, encoding_of, quantize
from jq.ir.mlir_context import at
from jq.ir.quantized import types
from jq.ir.quantized.markers import KINDS
from jq.ir.quantized.stored import StoredParts, has_typed_parts
from jq.ir.types import to_dtype
from jq.ir.values import functions_of


# Back from quantized types between ops to casts, dequantizes, and ops on plain numbers.
def open_values(ops: Iterable[Op]) -> None:
    """Rewrites in place what `jq/ir/quantized/values.py` wrote.

    Args:
        ops: of a module, in program order."""
    numbers = _Numbers()
    done = [op for op in types.outside(ops) if _opened(op, numbers)]
    for op in reversed(done):
        op.erase()


@dataclass
class _Numbers:
    """The floats that quantized values stand for.

    Attributes:
        real: of values that were floats before.
        plain: of codes, by what their dequantize said."""

    real: dict[ir.Value, ir.Value] = field(default_factory=dict)
    plain: dict[tuple[ir.Value, str], ir.Value] = field(default_factory=dict)

    def of(self, value: ir.Value, said: ir.Attribute | None = None) -> ir.Value:
        if value in self.real or said is None:
            return self.real.get(value, value)
        key = value, str(said)
        if key not in self.plain:
            shape = ir.RankedTensorType(value.type).shape
            kind = tensor_type(shape, np.float32)
            self.plain[key] = create(types.UNIFORM_DEQUANTIZE, kind, value, **{DEQUANTIZE: said})
        return self.plain[key]


def _opened(op: Op, numbers: _Numbers) -> bool:
    """Puts the op that it was in the place of an op; False where it stays."""
    attributes, name = attributes_of(op), op.operation.name
    real = numbers.real
    if name == types.UNIFORM_QUANTIZE and op.operands[0] in real and types.WIDE not in attributes:
        op.operands[0] = real[op.operands[0]]
        return False
    if types.WIDE not in attributes and types.TYPED not in attributes:
        return False
    first, result = op.operands[0], op.results[0]
    with at(op):
        if name == types.UNIFORM_DEQUANTIZE:
            result.replace_all_uses_with(numbers.of(first))
        elif types.WIDE in attributes:
            real[result] = numbers.of(first, attributes.get(DEQUANTIZE))
        elif (how := ir.StringAttr(attributes.pop(types.TYPED)).value) == "codes":
            result.replace_all_uses_with(_plain_codes(op, attributes))
        elif how == "bound":
            result.replace_all_uses_with(_bounded_number(op, attributes, numbers))
        else:
            real[result] = _number(op, attributes, numbers)
    return True


def _number(op: Op, attributes: dict[str, Any], numbers: _Numbers) -> ir.Value:
    """A product or a sum of floats."""
    operands, sides = list(op.operands), attributes.pop(types.SIDES, None)
    said = list(ir.ArrayAttr(sides)) if sides else [None] * len(operands)
    values = [numbers.of(v, s) for v, s in zip(operands, said, strict=True)]
    kind = tensor_type(ir.RankedTensorType(op.results[0].type).shape, np.float32)
    return types.like_op(op, kind, values, attributes).result


def _bounded_number(op: Op, attributes: dict[str, Any], numbers: _Numbers) -> ir.Value:
    """The bound in front of the quantize that it follows."""
    operands = list(op.operands)
    makers = [maker(v, types.UNIFORM_QUANTIZE) for v in operands]
    index = next(i for i, m in enumerate(makers) if m and types.WIDE not in m.attributes)
    quantize = makers[index]
    assert quantize is not None
    values = [numbers.of(v) for v in operands]
    values[index] = quantize.operands[0]
    made = types.like_op(op, values[index].type, values, attributes)
    kind, said = op.results[0].type, attributes_of(quantize)
    return types.like_op(quantize, kind, [made.result], said).result


def _plain_codes(op: Op, attributes: dict[str, Any]) -> ir.Value:
    """A movement of integers, between casts from and to their quantized type."""
    kind, element = op.results[0].type, types.element_of(op.results[0])
    integer = types.storage_of(element)
    operands = [
        types.cast(v, types.with_element(v.type, integer)) if types.element_of(v) == element else v
        for v in op.operands
    ]
    made = types.like_op(op, types.with_element(kind, integer), operands, attributes)
    return types.cast(made.result, kind)


def from_quant_types(module: ir.Module) -> None:
    """The markers of a module that `jq/ir/quantized/markers.py` wrote, in place.

    Raises:
        UserError: what an op says of itself is not its type."""
    functions = functions_of(module).values()
    ops = [op for f in functions for op in walk(f.entry_block)]
    if not any(set(KINDS) & set(op.attributes) or has_typed_parts(op) for op in ops):
        return
    open_values(ops)
    ops = [op for f in functions for op in walk(f.entry_block)]
    program = Program(module, {}, (), ())
    parts, plain = StoredParts(program), dict[ir.Value, ir.Value]()
    done = [op for op in ops if parts.back(op) or _back(program, op, plain, parts)]
    for op in reversed(done):
        if not is_read(*op.results):
            op.erase()
    parts.drop_constants()


def _back(program: Program, op: Op, plain: dict[ir.Value, ir.Value], parts: StoredParts) -> bool:
    """Puts a marker in the place of an op; `plain` has the integers of codes."""
    name, attributes = op.operation.name, op.attributes
    x, result = (*op.operands, None)[0], (*op.results, None)[0]
    if name == types.CAST:
        if x in plain and result.type == plain[x].type:
            result.replace_all_uses_with(plain[x])
        elif x in plain:
            parts.stored[result] = plain[x]  # of less than 8 bits
        elif types.is_quantized(result.type) and not types.is_quantized(x.type):
            plain[result] = x
        return True
    kind = next((k for k, n in KINDS.items() if n == name and k in attributes), None)
    if kind is None:
        return False
    said = ir.DictAttr(attributes[kind])
    enc, tensor = encoding_of(said), ir.StringAttr(said["tensor"]).value
    with at(op):
        held = {a.name: stablehlo.constant(a.attr) for a in ir.DictAttr(said["values"])}
        values = {k: evaluate(program, v) for k, v in held.items()}
        quantized = result if kind == QUANTIZE else x
        if quantized.type != types.kind_of(enc, values):
            raise UserError("a quantized type is not what its op says", op=tensor)
        if kind == QUANTIZE:
            plain[result] = quantize(program, x, enc, held, tensor=tensor)["codes"]
        elif x in plain:
            codes = parts.part(plain[x], enc, "codes", tensor)
            _dequantized(program, op, {"codes": codes, **held}, enc, said)
        else:
            return False
    return True


def _dequantized(
    program: Program, op: Op, parts: Mapping[str, ir.Value], enc: Encoding, said: ir.DictAttr
) -> None:
    dtype = to_dtype(ir.TypeAttr(said["type"]).value)
    value = dequantize(program, enc, parts, dtype, tensor=ir.StringAttr(said["tensor"]).value)
    for use in list(op.results[0].uses):
        if use.owner.operation.name == "stablehlo.convert" and (
            use.owner.results[0].type == value.type
        ):
            use.owner.results[0].replace_all_uses_with(value)
    op.results[0].replace_all_uses_with(OPS.convert(value, np.float32))
