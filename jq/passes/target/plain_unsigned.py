"""Unsigned integers are computed as signed ones of the same bits.

    maximum(%a, %b) : ui8   ->   xor(maximum(xor(%a, 0x80), xor(%b, 0x80)), 0x80) : i8
    convert %a : ui8 -> f32 ->   convert (and (convert %a : i8 -> i32), 255) : i32 -> f32

IREE 3.13 has integers without a sign, and loses or refuses unsigned ones in reversals, windows,
loops and contractions. Most ops treat the bits of both alike; those that do not are written in
signed ones. Inputs and results of the program keep their types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Program, at, dtype_of, editing, func, ir, shape_of, tensor_type, walk
from jq.ir.arrays import StableHloOps
from jq.ir.build import like, replace
from jq.passes.base import Pass, PassContext

OPS = StableHloOps()
ORDERED = ("stablehlo.maximum", "stablehlo.minimum", "stablehlo.clamp")
WIDENED = ("stablehlo.divide", "stablehlo.remainder", "stablehlo.power")


@dataclass(frozen=True)
class PlainUnsigned(Pass):
    name = "plain-unsigned"

    def run(self, program: Program, cx: PassContext) -> bool:
        functions = [op for op in program.module.body.operations if isinstance(op, func.FuncOp)]
        bodies = [block for f in functions for block in f.regions[0].blocks]
        if not any(is_unsigned(v) for block in bodies for v in _values(block)):
            return False
        kept = _keep_signature(program)
        for block in bodies:
            for op in walk(block):
                if any(is_unsigned(v) and v not in kept for v in (*op.operands, *op.results)):
                    _rewrite(op, kept)
        for block in bodies:
            for value in list(_values(block)):
                if is_unsigned(value) and value not in kept:
                    _retype(value)
            for op in walk(block):
                _tidy(op)
        for f in functions:
            if f.name.value != "main" and f.regions[0].blocks:
                _retype_function(f)
        return True


def is_unsigned(value: ir.Value) -> bool:
    """Whether a value is a tensor of unsigned integers of whole bytes."""
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType):
        return False
    element = kind.element_type
    return isinstance(element, ir.IntegerType) and _unsigned(element)


def _unsigned(element: ir.IntegerType) -> bool:
    return bool(element.is_unsigned) and element.width >= 8


def _values(block: ir.Block) -> Iterator[ir.Value]:
    yield from block.arguments
    for op in walk(block):
        yield from op.results
        for region in op.regions:
            for inner in region.blocks:
                yield from inner.arguments


def _rewrite(op: Any, kept: set[ir.Value]) -> None:
    """What reads the sign of its operands is written in signed integers; types are valid."""
    name = op.operation.name
    with at(op):
        if name == "stablehlo.constant":
            array = np.array(op.operation.attributes["value"])
            whole = np.broadcast_to(array, shape_of(op.results[0]))
            replace(op, [_as(OPS.constant(_bits(whole)), dtype_of(op.results[0]))])
        elif name == "stablehlo.compare":
            _compare(op)
        elif name in ORDERED:
            result = dtype_of(op.results[0])
            sides = [_shifted(v) for v in op.operands]
            found = like(op, sides, shape_of(op.results[0]), _signed(result))
            replace(op, [_as(_flipped(found), result)])
        elif name in WIDENED and dtype_of(op.results[0]).itemsize < 8:
            result = dtype_of(op.results[0])
            wide = np.dtype(f"i{2 * result.itemsize}")
            sides = [_widened(v, wide) for v in op.operands]
            found = like(op, sides, shape_of(op.results[0]), wide)
            replace(op, [_as(OPS.convert(found, _signed(result)), result)])
        elif (
            name == "func.call" or name in WIDENED or (name == "stablehlo.convert" and _is_wide(op))
        ):
            kept.update(_left_alone(op))
        elif name == "stablehlo.convert":
            replace(op, [_convert(op.operands[0], dtype_of(op.results[0]))])


def _compare(op: Any) -> None:
    """The order of unsigned integers is that of signed ones with the highest bit changed."""
    sides = [_shifted(v) for v in op.operands]
    found = like(
        op,
        sides,
        shape_of(op.results[0]),
        np.bool_,
        compare_type=ir.Attribute.parse("#stablehlo<comparison_type SIGNED>"),
    )
    replace(op, [found])


def _convert(x: ir.Value, result: np.dtype[Any]) -> ir.Value:
    source = dtype_of(x)
    if source.kind == "u":
        narrow = result.kind in "iu" and result.itemsize <= source.itemsize
        if narrow or result.kind == "b":
            return _narrowed(_as(x, _signed(source)), result)
        if result.kind in "iu":
            return _as(_widened(x, _signed(result)), result)
        return _to(_widened(x, np.dtype(f"i{max(4, 2 * source.itemsize)}")), result)
    if source.kind in "iub":
        return _narrowed(x, result)
    return _narrowed(_to(x, np.dtype(f"i{2 * result.itemsize}")), result)


def _narrowed(x: ir.Value, result: np.dtype[Any]) -> ir.Value:
    if result.kind != "u":
        return _to(x, result)
    return _as(_to(x, _signed(result)), result)


def _to(x: ir.Value, result: np.dtype[Any]) -> ir.Value:
    """A conversion between any two types."""
    if dtype_of(x) == result:
        return x
    return ir.Operation.create(
        "stablehlo.convert", results=[tensor_type(shape_of(x), result)], operands=[x]
    ).result


def _widened(x: ir.Value, wide: np.dtype[Any]) -> ir.Value:
    """The same number as a wider signed integer."""
    source = dtype_of(x)
    bits = OPS.convert(_as(x, _signed(source)), wide)
    mask = OPS.constant(np.array(np.iinfo(source).max, wide))
    return OPS.bit_and(bits, OPS.broadcast(mask, shape_of(x), ()))


def _shifted(x: ir.Value) -> ir.Value:
    return _flipped(_as(x, _signed(dtype_of(x))))


def _flipped(x: ir.Value) -> ir.Value:
    """The highest bit changed."""
    kind = dtype_of(x)
    high = OPS.broadcast(OPS.constant(np.array(np.iinfo(kind).min, kind)), shape_of(x), ())
    return ir.Operation.create("stablehlo.xor", results=[x.type], operands=[x, high]).result


def _signed(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{kind.itemsize}")


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(_signed(array.dtype)).reshape(array.shape)


def _as(x: ir.Value, kind: np.dtype[Any]) -> ir.Value:
    """The same bits with or without a sign."""
    if dtype_of(x) == kind:
        return x
    return ir.Operation.create(
        "stablehlo.bitcast_convert", results=[tensor_type(shape_of(x), kind)], operands=[x]
    ).result


def _is_wide(op: Any) -> bool:
    """Whether it converts between floats and 64 bits without a sign: no integer is wider."""
    kinds = [dtype_of(op.operands[0]), dtype_of(op.results[0])]
    wide = any(kind.kind == "u" and kind.itemsize == 8 for kind in kinds)
    return wide and not all(kind.kind in "iub" for kind in kinds)


def _left_alone(op: Any) -> list[ir.Value]:
    """Keeps the types of an op's operands and results, by casts around it."""
    kept = []
    for i, value in enumerate(op.operands):
        if is_unsigned(value):
            kept.append(_again(value))
            op.operation.operands[i] = kept[-1]
    with at(op, after=True):
        for value in op.results:
            if is_unsigned(value):
                _cast_readers(value)
                kept.append(value)
    return kept


def _again(value: ir.Value) -> ir.Value:
    return _as(_as(value, _signed(dtype_of(value))), dtype_of(value))


def _cast_readers(value: ir.Value) -> None:
    bits = _as(value, _signed(dtype_of(value)))
    value.replace_all_uses_except(_as(bits, dtype_of(value)), bits.owner.operation)


def _keep_signature(program: Program) -> set[ir.Value]:
    """What `@main` takes and gives back keeps its type."""
    kept = {argument for argument in program.body.arguments if is_unsigned(argument)}
    with at(program.body.operations[0]):
        for argument in kept:
            _cast_readers(argument)
    back = program.body.operations[len(program.body.operations) - 1]
    with at(back):
        kept.update(_left_alone(back))
    return kept


def _retype(value: ir.Value) -> None:
    with editing():
        value.set_type(tensor_type(shape_of(value), _signed(dtype_of(value))))


def _tidy(op: Any) -> None:
    """Casts between equal types go."""
    if op.operation.name != "stablehlo.bitcast_convert":
        return
    if op.operands[0].type == op.results[0].type:
        replace(op, [op.operands[0]])


def _retype_function(f: Any) -> None:
    block = f.regions[0].blocks[0]
    back = block.operations[len(block.operations) - 1]
    with editing():
        kind = ir.FunctionType.get(
            [a.type for a in block.arguments], [v.type for v in back.operands]
        )
        f.attributes["function_type"] = ir.TypeAttr.get(kind)
