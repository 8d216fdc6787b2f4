"""Codes as StableHLO's own quantized types, for other readers of the module; and back.

    %c = composite "jq.quantize" %x, %scale, %zero_point
    %d = composite "jq.dequantize" %c, %scale, %zero_point
    ->
    %q = uniform_quantize %x : tensor<4x8x!quant.uniform<i8:f32, 0.05:3>>
    %d = uniform_dequantize %q

Codes that come from elsewhere (a stored weight), or are moved in between, are bit casts of plain
integers, of 2 or 4 bits where the codes are. The types hold one scale (and zero point) for the
tensor or for each index of one axis. Scales are exact: a float32 is a float64, in which the type
keeps it, and MLIR prints all of its digits. What the types cannot say stays a composite: parameters
that are computed at run time, blocks, other formats than affine integers. Its parts have their
element types (`jq/ir/quantized/stored.py`).

StableHLO adds the zero point before it rounds, our formats after: a number within a float32
rounding error of a tie may get the neighbouring code. An attribute of each op says what it was, so
that `jq/ir/quantized/read.py` finds our own op again."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.formats import affine_format, is_affine
from jq.ir import OPS, Program, dtype_of, evaluate, ir, maker, tensor_type
from jq.ir.build import constant_of, create, replace
from jq.ir.encodings import write_encodings
from jq.ir.markers import DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC, Marker, match
from jq.ir.mlir_context import at
from jq.ir.quantized.stored import TypedParts
from jq.ir.quantized.types import CAST, UNIFORM_DEQUANTIZE, UNIFORM_QUANTIZE, axes_of, cast, kind_of
from jq.ir.quantized.values import carry_types

KINDS = {QUANTIZE: UNIFORM_QUANTIZE, DEQUANTIZE: UNIFORM_DEQUANTIZE}


def to_quant_types(program: Program, *, strict: bool = False) -> None:
    """Rewrites in place every marker that the types can hold, and gives the others' parts theirs.

    Args:
        strict: `UserError` for a stored weight that the quantized types cannot hold."""
    parts = TypedParts(program)
    for op in list(program.walk()):
        marker = match(op)
        if marker is None:
            continue
        stored = marker.kind == DEQUANTIZE and marker.tensor in program.encodings
        values = _values(program, marker)
        reason = _reason(marker, values)
        if reason and strict and stored:
            what = f"!quant.uniform cannot hold this weight: {reason}"
            raise UserError(what, op=marker.tensor, hint="use weights.emit=integer")
        with at(op):
            if not reason:
                replace(op, [_typed(parts, marker, values)])
            elif parts.needed(marker):
                replace(op, parts.rewritten(marker))
    write_encodings(program)
    _drop_casts(program)
    carry_types(program)
    _drop_casts(program)
    parts.settle()


def _values(program: Program, marker: Marker) -> dict[str, Any]:
    """Scale and zero point, None where they are not known."""
    if marker.kind == QUANTIZE_DYNAMIC:
        return {}
    return {k: evaluate(program, v) for k, v in marker.parts.items() if k != "codes"}


def _reason(marker: Marker, values: Mapping[str, Any]) -> str:
    """Reason why the types cannot hold a tensor; empty when they can."""
    enc = marker.encoding
    axes = axes_of(enc)
    if marker.kind == QUANTIZE_DYNAMIC:
        return "its parameters are those of the data"
    if not is_affine(enc.format):
        return f"{enc.format} is not an affine integer"
    if len(axes) > 1 or any(enc.block[a] > 1 for a in axes):
        return f"its scales have blocks {enc.block}"
    if any(a is None for a in values.values()):
        return "its scales are cut from those of a stack at run time"
    return ""


def _typed(parts: TypedParts, marker: Marker, values: Mapping[str, np.ndarray]) -> ir.Value:
    enc, fmt = marker.encoding, affine_format(marker.encoding.format)
    kind, narrow = kind_of(enc, values), fmt.element_types(enc).get("codes")
    if marker.kind == QUANTIZE:
        x = OPS.convert(marker.op.operands[0], np.float32)
        value = create(KINDS[QUANTIZE], kind, x, **{QUANTIZE: _said(marker, values)})
        codes = cast(value, tensor_type(enc.shape, narrow or fmt.code_type))
        return codes if narrow is None else parts.stored(codes, marker, "codes")
    codes = marker.parts["codes"]
    value = cast(codes if narrow is None else parts.typed(codes, marker, "codes"), kind)
    plain = tensor_type(enc.shape, np.float32)
    value = create(KINDS[DEQUANTIZE], plain, value, **{DEQUANTIZE: _said(marker, values)})
    return OPS.convert(value, dtype_of(marker.op.results[0]))


def _said(marker: Marker, values: Mapping[str, np.ndarray]) -> ir.Attribute:
    """All that a marker says, and its parameters, as an attribute of the op in its place."""
    own = ir.DictAttr(marker.op.attributes["composite_attributes"])
    data = {k: constant_of(v) for k, v in values.items()}
    held = {k: v.owner.attributes["value"] for k, v in data.items()}
    for v in data.values():
        v.owner.erase()
    dtype = ir.TypeAttr.get(ir.RankedTensorType(marker.op.results[0].type).element_type)
    entries = {a.name: a.attr for a in own} | {"values": ir.DictAttr.get(held), "type": dtype}
    return ir.DictAttr.get(entries)


def _drop_casts(program: Program) -> None:
    """Codes that are made and read as one quantized type need no integers between."""
    for op in [op for op in program.walk() if op.operation.name == CAST]:
        first = maker(op.operands[0], CAST)
        if first is None:
            continue
        if first.operands[0].type == op.results[0].type:
            replace(op, [first.operands[0]])
    program.drop_dead()
