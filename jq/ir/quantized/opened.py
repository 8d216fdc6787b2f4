"""Back from quantized types between ops to casts, dequantizes, and ops on plain numbers."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.ir import Op, ir, tensor_type
from jq.ir.build import attributes_of
from jq.ir.markers import DEQUANTIZE
from jq.ir.mlir_context import at
from jq.ir.quantized.kinds import (
    UNIFORM_DEQUANTIZE,
    UNIFORM_QUANTIZE,
    cast,
    element_of,
    storage_of,
    with_element,
)
from jq.ir.quantized.write import SIDES, TYPED, WIDE, like_op, outside
from jq.ir.values import maker


def open_values(ops: Iterable[Op]) -> None:
    """Rewrites in place what `jq/ir/quantized/values.py` wrote.

    Args:
        ops: of a module, in program order.
    """
    numbers = _Numbers()
    done = [op for op in outside(ops) if _opened(op, numbers)]
    for op in reversed(done):
        op.erase()


@dataclass
class _Numbers:
    """The floats that quantized values stand for.

    Attributes:
        real: of values that were floats before.
        plain: of codes, by what their dequantize said.
    """

    real: dict[ir.Value, ir.Value] = field(default_factory=dict)
    plain: dict[tuple[ir.Value, str], ir.Value] = field(default_factory=dict)

    def of(self, value: ir.Value, said: ir.Attribute | None = None) -> ir.Value:
        if value in self.real or said is None:
            return self.real.get(value, value)
        key = value, str(said)
        if key not in self.plain:
            shape = ir.RankedTensorType(value.type).shape
            made = ir.Operation.create(
                UNIFORM_DEQUANTIZE,
                results=[tensor_type(shape, np.float32)],
                operands=[value],
                attributes={DEQUANTIZE: said},
            )
            self.plain[key] = made.result
        return self.plain[key]


def _opened(op: Op, numbers: _Numbers) -> bool:
    """Puts the op that it was in the place of an op; False where it stays."""
    attributes, name = attributes_of(op), op.operation.name
    real = numbers.real
    if name == UNIFORM_QUANTIZE and op.operands[0] in real and WIDE not in attributes:
        op.operands[0] = real[op.operands[0]]
        return False
    if WIDE not in attributes and TYPED not in attributes:
        return False
    first, result = op.operands[0], op.results[0]
    with at(op):
        if name == UNIFORM_DEQUANTIZE:
            result.replace_all_uses_with(numbers.of(first))
        elif WIDE in attributes:
            real[result] = numbers.of(first, attributes.get(DEQUANTIZE))
        elif (how := ir.StringAttr(attributes.pop(TYPED)).value) == "codes":
            result.replace_all_uses_with(_plain_codes(op, attributes))
        elif how == "bound":
            result.replace_all_uses_with(_bounded_number(op, attributes, numbers))
        else:
            real[result] = _number(op, attributes, numbers)
    return True


def _number(op: Op, attributes: dict[str, Any], numbers: _Numbers) -> ir.Value:
    """A product or a sum of floats."""
    operands, sides = list(op.operands), attributes.pop(SIDES, None)
    said = list(ir.ArrayAttr(sides)) if sides else [None] * len(operands)
    values = [numbers.of(v, s) for v, s in zip(operands, said, strict=True)]
    kind = tensor_type(ir.RankedTensorType(op.results[0].type).shape, np.float32)
    return like_op(op, kind, values, attributes).result


def _bounded_number(op: Op, attributes: dict[str, Any], numbers: _Numbers) -> ir.Value:
    """The bound in front of the quantize that it follows."""
    operands = list(op.operands)
    makers = [maker(v, UNIFORM_QUANTIZE) for v in operands]
    index = next(i for i, m in enumerate(makers) if m and WIDE not in m.attributes)
    quantize = makers[index]
    assert quantize is not None
    values = [numbers.of(v) for v in operands]
    values[index] = quantize.operands[0]
    made = like_op(op, values[index].type, values, attributes)
    return like_op(quantize, op.results[0].type, [made.result], attributes_of(quantize)).result


def _plain_codes(op: Op, attributes: dict[str, Any]) -> ir.Value:
    """A movement of integers, between casts from and to their quantized type."""
    kind, element = op.results[0].type, element_of(op.results[0])
    integer = storage_of(element)
    operands = [
        cast(v, with_element(v.type, integer)) if element_of(v) == element else v
        for v in op.operands
    ]
    made = like_op(op, with_element(kind, integer), operands, attributes)
    return cast(made.result, kind)
