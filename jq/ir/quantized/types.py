"""Codes as StableHLO's own quantized types, for other readers of the module; and back.

    %c = composite "jq.quantize" %x, %scale, %zero_point
    %d = composite "jq.dequantize" %c, %scale, %zero_point
    ->
    %q = uniform_quantize %x : tensor<4x8x!quant.uniform<i8:f32, 0.05:3>>
    %d = uniform_dequantize %q

Codes that come from elsewhere (a stored weight), or are moved in between, are bit casts of plain
integers. The types hold one scale (and zero point) for the tensor or for each index of one axis.
Scales are exact: a float32 is a float64, in which the type keeps it, and MLIR prints all of its
digits. What the types cannot say stays a composite: parameters that are computed at run time,
blocks, codes of less than 8 bits in packed bytes, other formats than affine integers.

StableHLO adds the zero point before it rounds, our formats behind: a number within a float32
rounding error of a tie may get the neighbouring code. An attribute of each op says what it was,
so that `from_quant_types` finds our own op again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.errors import UserError
from jq.formats import NUMPY, Encoding
from jq.formats.affine import affine_format, is_affine
from jq.formats.affine_storage import FULL
from jq.ir.arrays import StableHloOps
from jq.ir.build import replace
from jq.ir.constants import evaluate
from jq.ir.encodings import write_encodings
from jq.ir.markers import DEQUANTIZE, QUANTIZE, Marker, dequantize, encoding_of, match, quantize
from jq.ir.mlir_context import at
from jq.ir.program import Program, constant_of, walk
from jq.ir.quantized.values import carry_types, open_values
from jq.ir.types import dtype_of, tensor_type, to_dtype
from jq.ir.values import Op, maker

OPS = StableHloOps()
KINDS = {QUANTIZE: "stablehlo.uniform_quantize", DEQUANTIZE: "stablehlo.uniform_dequantize"}
CAST = "stablehlo.bitcast_convert"


def to_quant_types(program: Program, *, strict: bool = False) -> None:
    """Rewrites in place every marker that the types can hold.

    Args:
        strict: stored weights with codes of less than 8 bits, too; `UserError` for one that the
            types cannot hold.
    """
    for op in list(program.walk()):
        marker = match(op, *KINDS)
        if marker is None:
            continue
        stored = marker.kind == DEQUANTIZE and marker.tensor in program.encodings
        values = _values(program, marker)
        reason = _reason(marker, values, packed=strict and stored)
        if reason and strict and stored:
            raise UserError(
                f"!quant.uniform cannot hold this weight: {reason}",
                op=marker.tensor,
                hint="use weights.emit=integer",
            )
        if not reason:
            with at(op):
                replace(op, [_typed(marker, values)])
            if marker.tensor in program.encodings and _bits(marker.encoding) < 8:
                del program.encodings[marker.tensor]  # nothing holds the bytes that it describes
    write_encodings(program)
    _drop_casts(program)
    carry_types(program)
    _drop_casts(program)


def _values(program: Program, marker: Marker) -> dict[str, Any]:
    """Scale and zero point, None where they are not known."""
    return {k: evaluate(program, v) for k, v in marker.parts.items() if k != "codes"}


def _reason(marker: Marker, values: Mapping[str, Any], *, packed: bool) -> str:
    """Why the types cannot hold a tensor; empty when they can."""
    enc = marker.encoding
    axes = [a for a, n in enumerate(enc.grid) if n > 1]
    if not is_affine(enc.format):
        return f"{enc.format} is not an affine integer"
    if len(axes) > 1 or any(enc.block[a] > 1 for a in axes):
        return f"its scales have blocks {enc.block}"
    if any(a is None for a in values.values()):
        return "its scales are cut from those of a stack at run time"
    if _bits(enc) < 8 and not packed:
        return "its codes are packed into bytes"
    return ""


def _bits(enc: Encoding) -> int:
    return affine_format(enc.format).bits


def _kind(enc: Encoding, values: Mapping[str, Any]) -> ir.Type:
    """The quantized type of an encoding and its parameters."""
    fmt = affine_format(enc.format)
    scales = np.asarray(fmt.scale(NUMPY, values, enc), np.float64).reshape(-1)
    zeros = values.get("zero_point")
    if zeros is not None and zeros.dtype != np.int32:  # as it is stored
        zeros = fmt.zero_point(NUMPY, values, enc)
    points = np.zeros(scales.shape, int) if zeros is None else np.asarray(zeros).reshape(-1)
    low, high = fmt.limits(enc)
    numbers = [f"{s!r}:{z}" for s, z in zip(scales.tolist(), points.tolist(), strict=True)]
    axes = [a for a, n in enumerate(enc.grid) if n > 1]
    rest = f":{axes[0]}, {{{', '.join(numbers)}}}" if axes else f", {numbers[0]}"
    shape = "".join(f"{n}x" for n in enc.shape)
    return ir.Type.parse(f"tensor<{shape}!quant.uniform<i{fmt.bits}<{low}:{high}>:f32{rest}>>")


def encoding_of_type(kind: ir.Type) -> Encoding | None:
    """The encoding that a tensor of a quantized type has; None where no format is it."""
    shape = tuple(ir.RankedTensorType(kind).shape)
    found = re.search(r"!quant\.uniform<([iu])(\d+)(?:<(-?\d+):-?\d+>)?:\w+(?::(\d+))?", str(kind))
    if found is None or found[2] not in ("2", "4", "8", "16"):
        return None
    zeros = ":" in str(kind).partition(", ")[2]
    block = tuple(int(found[4] == str(axis)) for axis in range(len(shape)))
    name = f"{'uint' if found[1] == 'u' else 'int'}{found[2]}"
    full = found[3] is None or int(found[3]) == -(1 << (int(found[2]) - 1))
    if zeros:
        return Encoding(name, shape, block, "asymmetric")
    return Encoding(name, shape, block, options=(("divisor", FULL),) if full else ())


def _typed(marker: Marker, values: Mapping[str, np.ndarray]) -> ir.Value:
    enc, fmt = marker.encoding, affine_format(marker.encoding.format)
    kind = _kind(enc, values)
    if marker.kind == QUANTIZE:
        x = OPS.convert(marker.op.operands[0], np.float32)
        value = _op(KINDS[QUANTIZE], kind, x, {QUANTIZE: _said(marker, values)})
        return _op(CAST, tensor_type(enc.shape, fmt.code_type), value)
    codes = fmt.codes(OPS, marker.parts, enc)
    if fmt.bits < 8:
        narrow = ir.RankedTensorType.get(enc.shape, ir.IntegerType.get_signless(fmt.bits))
        codes = _op("stablehlo.convert", narrow, codes)
    value = _op(CAST, kind, codes)
    plain = tensor_type(enc.shape, np.float32)
    value = _op(KINDS[DEQUANTIZE], plain, value, {DEQUANTIZE: _said(marker, values)})
    return OPS.convert(value, dtype_of(marker.op.results[0]))


def _said(marker: Marker, values: Mapping[str, np.ndarray]) -> ir.Attribute:
    """All that a marker says, and its parameters, as an attribute of the op in its place."""
    own = ir.DictAttr(marker.op.operation.attributes["composite_attributes"])
    data = {k: constant_of(v) for k, v in values.items()}
    held = {k: v.owner.operation.attributes["value"] for k, v in data.items()}
    for v in data.values():
        v.owner.operation.erase()
    dtype = ir.TypeAttr.get(ir.RankedTensorType(marker.op.results[0].type).element_type)
    entries = {a.name: a.attr for a in own} | {"values": ir.DictAttr.get(held), "type": dtype}
    return ir.DictAttr.get(entries)


def _op(name: str, kind: ir.Type, value: ir.Value, attributes: Any = None) -> ir.Value:
    made = ir.Operation.create(name, results=[kind], operands=[value], attributes=attributes)
    return made.result


def _drop_casts(program: Program) -> None:
    """Codes that are made and read as one quantized type need no integers between."""
    for op in [op for op in program.walk() if op.operation.name == CAST]:
        first = maker(op.operands[0], CAST)
        if first is None:
            continue
        if first.operation.operands[0].type == op.operation.results[0].type:
            replace(op, [first.operation.operands[0]])
    program.drop_dead()


def from_quant_types(module: ir.Module) -> None:
    """The markers of a module that `to_quant_types` wrote, in place.

    Raises:
        UserError: what an op says of itself is not its type.
    """
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    ops = [op for f in functions for op in walk(f.regions[0].blocks[0])]
    if not any(set(KINDS) & set(op.operation.attributes) for op in ops):
        return
    open_values(ops)
    ops = [op for f in functions for op in walk(f.regions[0].blocks[0])]
    program, plain = Program(module, {}, (), ()), dict[ir.Value, ir.Value]()
    done = [op for op in ops if _back(program, op, plain)]
    for op in reversed(done):
        if not any(True for v in op.operation.results for _ in v.uses):
            op.operation.erase()


def _back(program: Program, op: Op, plain: dict[ir.Value, ir.Value]) -> bool:
    """Puts a marker in the place of an op; `plain` has the codes behind quantized values."""
    name, attributes = op.operation.name, op.operation.attributes
    x, result = (*op.operation.operands, None)[0], (*op.operation.results, None)[0]
    if name == CAST:
        if x in plain and result.type == plain[x].type:
            result.replace_all_uses_with(plain[x])
        elif "!quant." in str(result.type) and "!quant." not in str(x.type):
            plain[result] = x
        return True
    kind = next((k for k, n in KINDS.items() if n == name and k in attributes), None)
    if kind is None:
        return False
    said = ir.DictAttr(attributes[kind])
    enc, tensor = encoding_of(said), ir.StringAttr(said["tensor"]).value
    with at(op):
        held = {a.name: _constant(a.attr) for a in ir.DictAttr(said["values"])}
        values = {k: evaluate(program, v) for k, v in held.items()}
        quantized = result if kind == QUANTIZE else x
        if quantized.type != _kind(enc, values):
            raise UserError("a quantized type is not what its op says", op=tensor)
        if kind == QUANTIZE:
            plain[result] = quantize(program, x, enc, held, tensor=tensor)["codes"]
        elif x in plain and _bits(enc) >= 8:
            _dequantized(program, op, {"codes": plain[x], **held}, enc, said)
        else:
            return False
    return True


def _constant(attr: ir.Attribute) -> ir.Value:
    made = ir.Operation.create(
        "stablehlo.constant", results=[attr.type], attributes={"value": attr}
    )
    return made.result


def _dequantized(
    program: Program, op: Op, parts: Mapping[str, ir.Value], enc: Encoding, said: ir.DictAttr
) -> None:
    dtype = to_dtype(ir.TypeAttr(said["type"]).value)
    value = dequantize(program, enc, parts, dtype, tensor=ir.StringAttr(said["tensor"]).value)
    for use in list(op.operation.results[0].uses):
        if use.owner.operation.name == "stablehlo.convert" and (
            use.owner.operation.results[0].type == value.type
        ):
            use.owner.operation.results[0].replace_all_uses_with(value)
    op.operation.results[0].replace_all_uses_with(OPS.convert(value, np.float32))
