"""Ops on quantized types, each of which says what it was."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jq.ir import Op, Program, ir, tensor_type
from jq.ir.build import attributes_of
from jq.ir.markers import DEQUANTIZE
from jq.ir.ops.lookup import of_one_type, rule_named
from jq.ir.quantized.kinds import UNIFORM_DEQUANTIZE, UNIFORM_QUANTIZE, element_of, with_element
from jq.ir.values import maker

# What an op was; how its operands are encoded; an edge of sums of 32 bits.
TYPED, SIDES, WIDE = "jq.typed", "jq.sides", "jq.wide"


def outside(ops: Iterable[Op]) -> list[Op]:
    """Without those in the bodies of pools and the like, which go with their op."""
    parents = ((op, op.operation.parent) for op in ops)
    return [op for op, parent in parents if parent is None or rule_named(parent.name) is None]


def checked(
    op: Op, kind: ir.Type, operands: Sequence[ir.Value], **attributes: ir.Attribute
) -> ir.Value | None:
    """An op on other operands, with more attributes; None where StableHLO has no such op."""
    try:
        made = like_op(op, kind, operands, attributes_of(op) | attributes)
        made.verify()
    except ir.MLIRError:
        made.erase()
        return None
    return made.result


def like_op(
    op: Op, kind: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, Any]
) -> ir.Operation:
    """An op on operands and with a result of other types; what it does to scalars goes along."""
    made = ir.Operation.create(
        op.operation.name,
        results=[kind],
        operands=list(operands),
        attributes=attributes,
        regions=len(op.regions),
    )
    if len(op.regions):
        _copy_body(op, made, ir.RankedTensorType(kind).element_type)
    return made


def _copy_body(op: Op, made: ir.Operation, element: ir.Type) -> None:
    """The body of a pool or a sort, for scalars of another type."""
    (old,) = op.regions[0].blocks
    plain = old.arguments[0].type
    scalar = ir.RankedTensorType.get([], element)
    block = made.regions[0].blocks.append(*(scalar for _ in old.arguments))
    known = dict(zip(old.arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for inner in old.operations:
            kinds = [v.type for v in inner.results]
            copy = ir.Operation.create(
                inner.operation.name,
                results=[scalar if kind == plain else kind for kind in kinds],
                operands=[known[v] for v in inner.operands],
                attributes=attributes_of(inner),
            )
            known.update(zip(inner.results, copy.results, strict=True))


def floats(sums: ir.Value) -> ir.Value:
    """The float numbers that sums of 32 bits are."""
    kind = tensor_type(ir.RankedTensorType(sums.type).shape, np.float32)
    made = ir.Operation.create(
        UNIFORM_DEQUANTIZE, results=[kind], operands=[sums], attributes={WIDE: ir.UnitAttr.get()}
    )
    return made.result


def widened(value: ir.Value, bits: int, said: ir.DictAttr, *, centred: bool) -> ir.Value:
    """The same numbers in codes of more bits; `centred`: around a zero point of 0, which the right
    side of StableHLO's products must have. The difference of two codes of 8 bits has 9."""
    element = str(element_of(value))
    if centred:
        element = re.sub(r":-?\d+>$", ">", element)
    wide = ir.Type.parse(re.sub(r"^(!quant\.uniform<)i\d+(<[^>]*>)?:", rf"\1i{bits}:", element))
    made = ir.Operation.create(
        UNIFORM_QUANTIZE,
        results=[with_element(value.type, wide)],
        operands=[value],
        attributes={WIDE: ir.UnitAttr.get(), DEQUANTIZE: said},
    )
    return made.result


def sums_of(value: ir.Value) -> ir.Value | None:
    """The quantized sums that a float value is, or None."""
    op = maker(value, UNIFORM_DEQUANTIZE)
    return op.operands[0] if op and WIDE in op.attributes else None


def is_constant(program: Program, value: ir.Value) -> bool:
    """True if a value is a constant or a weight, but for movement."""
    while (op := maker(value)) is not None and of_one_type(op) == (0,):
        value = op.operands[0]
    return program.weight_name(value) is not None or maker(value, "stablehlo.constant") is not None


def text(value: str) -> ir.Attribute:
    return ir.StringAttr.get(value)
