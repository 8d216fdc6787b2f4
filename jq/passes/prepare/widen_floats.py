"""Every float of the program becomes float32, where codes take the place of all of them anyway.

    func @main(%x: tensor<4xbf16>)           func @main(%x: tensor<4xbf16>)
                                             %0 = convert %x : f32
    %1 = tanh %x : bf16               ->     %1 = tanh %0 : f32
    return %1                                %2 = convert %1 : bf16;  return %2

A model in bfloat16, float16 or float64 (or several) is then what later passes know. Inputs and
outputs keep their types. Only for `placement=early`: elsewhere floats stay between products, their
types the model's choice. What reads bits (`bitcast_convert`, a custom call) gets its type."""

from typing import Any

import ml_dtypes
import numpy as np

from jq.formats import Deferred
from jq.ir import Program, at, create, dtype_of, ir, maker, markers, reached, replace
from jq.ir.arrays import OPS
from jq.passes._retype import keep_signature, keep_types, retype, retype_functions, values_of
from jq.passes.base import Pass, PassContext

SINGLE = np.dtype(np.float32)
OTHER = {np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float64)}
BITS = ("stablehlo.bitcast_convert", "stablehlo.custom_call")


class WidenFloats(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        kept = _stored(program)
        if not any(_other(v) and v not in kept for v in values_of(program.body)):
            return False
        opaque = _markers(program)
        inputs = list(program.body.arguments)[: len(program.inputs)]
        kept = _stored(program) | keep_signature(program, inputs, _other, _converted)
        for op in list(program.walk()):
            if op.operation.name in BITS:
                kept.update(keep_types(op, _other, _converted))
            elif markers.match(op):
                kept.update(op.results)
        for f in program.functions():
            if f.name.value not in opaque:
                for value in list(values_of(f.entry_block)):
                    if _other(value) and value not in kept:
                        retype(value, SINGLE)
        for name, array in program.weights.items():
            if array.dtype in OTHER and dtype_of(program.weight(name)) == SINGLE:
                program.weights[name] = _single(array)
        for op in list(program.walk()):
            if op.operation.name == "stablehlo.convert":
                (x,), (result,) = op.operands, op.results
                if x.type == result.type:
                    replace(op, [x])
        retype_functions(program)
        program.refresh()
        program.drop_dead()
        return True


def _other(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and dtype_of(value) in OTHER


def _stored(program: Program) -> set[ir.Value]:
    """Scales of markers and what they come from: their types are those of a format."""
    parts = [v for op in program.walk() if (m := markers.match(op)) for v in m.parts.values()]

    def follow(v: ir.Value) -> list[ir.Value]:
        made = maker(v) is not None and markers.match(v.owner) is None
        return list(filter(_other, v.owner.operands)) if made else []

    return set(reached(filter(_other, parts), follow))


def _converted(value: ir.Value) -> ir.Value:
    """A conversion to the type that the value has now; either side changes later."""
    return create("stablehlo.convert", value.type, value)


def _markers(program: Program) -> set[str]:
    """Rebuilds markers on float32; the names of all their decompositions."""
    for op in list(program.walk()):
        marker = markers.match(op)
        if marker is not None and any(map(_other, (*op.operands, *op.results))):
            with at(op):
                replace(op, _rebuilt(program, marker))
    found = {op.attributes["decomposition"] for op in program.walk() if markers.match(op)}
    return {ir.FlatSymbolRefAttr(symbol).value for symbol in found}


def _rebuilt(program: Program, marker: markers.Marker) -> list[ir.Value]:
    enc, tensor = marker.encoding, marker.tensor
    if marker.kind == markers.DEQUANTIZE:
        value = markers.dequantize(program, enc, marker.parts, SINGLE, tensor=tensor)
        return [OPS.convert(value, dtype_of(marker.op.results[0]))]
    x = OPS.convert(marker.op.operands[0], SINGLE)
    if marker.kind == markers.QUANTIZE:
        return [markers.quantize(program, x, enc, marker.parts, tensor=tensor)["codes"]]
    return list(markers.quantize_dynamic(program, x, enc, tensor=tensor).values())


def _single(array: Any) -> Any:
    if isinstance(array, Deferred):
        pieces = array.pieces
        return Deferred(array.shape, SINGLE, lambda: (p.astype(SINGLE) for p in pieces()))
    return np.asarray(array).astype(SINGLE)
