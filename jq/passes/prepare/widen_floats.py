"""Every float of the program becomes float32, where codes take the place of all of them anyway.

    func @main(%x: tensor<4xbf16>)           func @main(%x: tensor<4xbf16>)
                                             %0 = convert %x : f32
    %1 = tanh %x : bf16               ->     %1 = tanh %0 : f32
    return %1                                %2 = convert %1 : bf16;  return %2

A model in bfloat16, float16 or float64 (or in several) is then what the passes after know. Inputs
and outputs keep their types. Only for `placement=early`: elsewhere floats stay between products,
and their types are the model's choice. What reads bits (`bitcast_convert`, a custom call) gets
the type that it had.
"""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from jq.ir import (
    Op,
    Program,
    at,
    constant_of,
    context,
    dtype_of,
    func,
    ir,
    shape_of,
    tensor_type,
    walk,
)
from jq.ir.arrays import OPS
from jq.ir.build import create, replace
from jq.ir.constants import evaluate
from jq.ir.markers import (
    DEQUANTIZE,
    QUANTIZE,
    Marker,
    dequantize,
    match,
    quantize,
    quantize_dynamic,
)
from jq.ir.resources import Deferred
from jq.ir.values import is_read, last_of, maker
from jq.passes.base import Pass, PassContext

SINGLE = np.dtype(np.float32)
OTHER = {np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float64)}
BITS = ("stablehlo.bitcast_convert", "stablehlo.custom_call")


class WidenFloats(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        kept = _stored(program)
        values = [*program.body.arguments, *(v for op in program.walk() for v in _values(op))]
        if not any(_other(v) and v not in kept for v in values):
            return False
        opaque = _markers(program)
        kept = _stored(program) | _bits(program)
        for fn in program.module.body.operations:
            if isinstance(fn, func.FuncOp) and fn.name.value not in opaque:
                _function(program, fn, kept)
        for op in list(program.walk()):
            if op.operation.name == "stablehlo.convert" and (
                op.operands[0].type == op.results[0].type
            ):
                replace(op, [op.operands[0]])
        program.drop_dead()
        return True


def _other(value: ir.Value) -> bool:
    kind = value.type
    return isinstance(kind, ir.RankedTensorType) and dtype_of(value) in OTHER


def _values(op: Op) -> Iterator[ir.Value]:
    """The values that an op defines: its results, and the arguments of its regions."""
    yield from op.results
    for region in op.regions:
        for block in region.blocks:
            yield from block.arguments


def _stored(program: Program) -> set[ir.Value]:
    """Scales of markers and what they come from: their types are those of a format."""
    todo = [v for op in program.walk() if (m := match(op)) for v in m.parts.values()]
    stored: set[ir.Value] = set()
    while todo:
        v = todo.pop()
        if _other(v) and v not in stored:
            stored.add(v)
            if maker(v) is not None and match(v.owner) is None:
                todo.extend(v.owner.operands)
    return stored


def _bits(program: Program) -> set[ir.Value]:
    """Converts what bit ops read and make; gives the values between, which keep their types."""
    kept: set[ir.Value] = set()
    for op in [op for op in program.walk() if op.operation.name in BITS]:
        for i, v in enumerate(op.operands):
            if _other(v):
                with at(op):
                    op.operands[i] = _converted(v)
                kept.add(op.operands[i])
        for v in op.results:
            if _other(v):
                with at(op, after=True):
                    new = _converted(v)
                v.replace_all_uses_except(new, new.owner.operation)
                kept.add(v)
    return kept


def _converted(value: ir.Value) -> ir.Value:
    """A conversion to the type that the value has now; either side changes later."""
    return create("stablehlo.convert", value.type, value)


def _markers(program: Program) -> set[str]:
    """Rebuilds markers on float32; the names of all their decompositions."""
    for op in list(program.walk()):
        marker = match(op)
        if marker is not None and any(map(_other, (*op.operands, *op.results))):
            with at(op):
                replace(op, _rebuilt(program, marker))
    found = {op.attributes["decomposition"] for op in program.walk() if match(op)}
    return {ir.FlatSymbolRefAttr(symbol).value for symbol in found}


def _rebuilt(program: Program, marker: Marker) -> list[ir.Value]:
    enc, tensor = marker.encoding, marker.tensor
    if marker.kind == DEQUANTIZE:
        value = dequantize(program, enc, marker.parts, SINGLE, tensor=tensor)
        return [OPS.convert(value, dtype_of(marker.op.results[0]))]
    x = OPS.convert(marker.op.operands[0], SINGLE)
    if marker.kind == QUANTIZE:
        return [quantize(program, x, enc, marker.parts, tensor=tensor)["codes"]]
    return list(quantize_dynamic(program, x, enc, tensor=tensor).values())


def _function(program: Program, fn: func.FuncOp, kept: set[ir.Value]) -> None:
    block, main = fn.entry_block, fn.name.value == "main"
    with context(), ir.Location.unknown():
        _weights(program, kept) if main else _retype(block.arguments, kept)
        for op in list(walk(block)):
            _op(program, op, kept)
        last = last_of(block)
        if main:
            _ends(program, block, last)
            program.refresh()
        else:
            kinds = [a.type for a in block.arguments], [v.type for v in last.operands]
            fn.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))


def _retype(values: Any, kept: set[ir.Value]) -> None:
    for v in values:
        if _other(v) and v not in kept:
            v.set_type(tensor_type(shape_of(v), SINGLE))


def _weights(program: Program, kept: set[ir.Value]) -> None:
    arguments = list(program.body.arguments)[len(program.inputs) :]
    for value, (name, array) in zip(arguments, list(program.weights.items()), strict=True):
        if _other(value) and value not in kept:
            program.weights[name] = _single(array)
            _retype([value], kept)


def _single(array: Any) -> Any:
    if isinstance(array, Deferred):
        pieces = array.pieces
        return Deferred(array.shape, SINGLE, lambda: (p.astype(SINGLE) for p in pieces()))
    return np.asarray(array).astype(SINGLE)


def _ends(program: Program, block: ir.Block, last: Op) -> None:
    """Conversions of the inputs in front, of the outputs after."""
    for value in list(block.arguments)[: len(program.inputs)]:
        if _other(value) and is_read(value):
            with at(block.operations[0]):
                single = OPS.convert(value, SINGLE)
            value.replace_all_uses_except(single, single.owner.operation)
    for i, spec in enumerate(program.outputs):
        if spec.dtype in (d.name for d in OTHER) and dtype_of(last.operands[i]) == SINGLE:
            with at(last):
                last.operands[i] = OPS.convert(last.operands[i], _dtype(spec.dtype))


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _op(program: Program, op: Op, kept: set[ir.Value]) -> None:
    results = list(op.results)
    if match(op) or not any(_other(v) and v not in kept for v in _values(op)):
        return
    if op.operation.name == "stablehlo.constant":
        array = evaluate(program, results[0])
        assert array is not None
        with at(op):
            replace(op, [constant_of(array.astype(SINGLE))])
        return
    _retype(_values(op), kept)
