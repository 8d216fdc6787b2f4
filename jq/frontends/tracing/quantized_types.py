"""Ops on StableHLO's quantized types become float ops between codes that are signed and stand for
float32: jaxlib's arithmetic is for those alone.

    !quant.uniform<u8:f32, 0.05:131>   ->   !quant.uniform<i8:f32, 0.05:3>

It takes the codes of both for signed: an unsigned one from half of its range on would be cut off.
Constants are shifted with their zero points.

    %q = uniform_quantize %x : tensor<4xbf16> -> tensor<4x!quant.uniform<i8:bf16, 0.05:3>>
    ->
    %f = convert %x : tensor<4xbf16> -> tensor<4xf32>
    %q = uniform_quantize %f : tensor<4xf32> -> tensor<4x!quant.uniform<i8:f32, 0.05004883:3>>

and back after a uniform_dequantize. Scales are rounded to the type that they had. What a code of 8
bits stands for is rounded once, to that type, which is what StableHLO's own arithmetic gives; a
quotient is rounded to float32 instead."""

import re
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from jq.base.errors import UserError
from jq.ir import Op, at, dtype_of, editing, ir, run_passes, shape_of, tensor_type, walk
from jq.ir.arrays import OPS
from jq.ir.build import string_attr
from jq.ir.values import functions_of

_TYPE = re.compile(
    r"!quant\.uniform<u(?P<bits>\d+)(?:<(?P<low>\d+):(?P<high>\d+)>)?"
    r"(?P<rest>:\w+(?::\d+)?), (?P<numbers>[^<>]*)>"
)
_NUMBER = re.compile(r"([^\s{},:]+)(?::(-?\d+))?")
_UNSIGNED = "!quant.uniform<u"


def open_quantized_types(module: ir.Module) -> None:
    """Ops on `!quant.uniform` become float ops between explicit quantize and dequantize.

    In two steps, for StableHLO's own arithmetic on quantized operands truncates and wraps. The
    codes are those that StableHLO defines: the zero point is added before rounding."""
    values = (v for op in all_ops(module) for v in (*op.operation.operands, *op.operation.results))
    if any("!quant.uniform" in str(v.type) for v in values):
        with editing():
            to_signed(module, all_ops(module))
        run_passes(module, "func.func(stablehlo-legalize-quantized-op-to-qdq,canonicalize)")
        with editing():
            to_float32(all_ops(module))
        run_passes(module, "func.func(stablehlo-legalize-quant-to-math)")


def all_ops(module: ir.Module) -> list[ir.OpView]:
    return [op for f in functions_of(module).values() for op in walk(f.entry_block)]


def to_signed(module: ir.Module, ops: Iterable[Any]) -> None:
    """Rewrites the types of all values, in place; `ops` are all of the module.

    Raises:
        UserError: codes enter or leave the program, or are taken for other data."""
    all_ops = [op.operation for op in ops]
    for op in all_ops:
        kinds = [str(v.type) for v in (*op.operands, *op.results)]
        if op.name == "stablehlo.bitcast_convert" and any(_UNSIGNED in k for k in kinds):
            raise _refused("a bit cast reads or makes its codes", op)
        if op.name == "stablehlo.constant" and _UNSIGNED in kinds[0]:
            _shift_codes(op)
    for function in module.body.operations:
        _retype_function(function.operation)
    for op in all_ops:
        inside = [v for region in op.regions for b in region.blocks for v in b.arguments]
        for value in (*op.results, *inside):
            _retype(value)


def _retype(value: ir.Value) -> None:
    if _UNSIGNED in (text := str(value.type)):
        value.set_type(ir.Type.parse(_signed(text)))


def _retype_function(function: Any) -> None:
    if function.name != "func.func":
        return
    kind = function.attributes["function_type"]
    if _UNSIGNED not in (text := str(kind)):
        return
    if string_attr(function, "sym_visibility") != "private":
        raise _refused("its codes are an input or a result of the program", function)
    for block in function.regions[0].blocks:
        for argument in block.arguments:
            _retype(argument)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.Type.parse(_signed(text)))


def _shift_codes(constant: Any) -> None:
    """Codes from 0 become codes from the middle: the highest bit changes."""
    attr = constant.attributes["value"]
    kind = ir.RankedTensorType(attr.type)
    if kind.element_type.width not in (8, 16, 32) or not isinstance(attr, ir.DenseElementsAttr):
        raise _refused("a constant holds codes that are no whole bytes", constant)
    dtype = np.dtype(f"int{kind.element_type.width}")
    codes = np.array(attr).astype(dtype).reshape(-1) ^ np.iinfo(dtype).min
    whole = np.resize(codes, shape_of(constant.results[0]))
    constant.attributes["value"] = ir.DenseElementsAttr.get(np.ascontiguousarray(whole))


def _signed(text: str) -> str:
    """A type with every unsigned quantized type in it replaced."""

    def replaced(found: re.Match[str]) -> str:
        half = 1 << (int(found["bits"]) - 1)

        def number(entry: re.Match[str]) -> str:
            return f"{entry[1]}:{int(entry[2] or 0) - half}"

        low, high = int(found["low"] or 0), int(found["high"] or 2 * half - 1)
        storage = f"i{found['bits']}<{low - half}:{high - half}>"
        return f"!quant.uniform<{storage}{found['rest']}, {_NUMBER.sub(number, found['numbers'])}>"

    text = _TYPE.sub(replaced, text)
    if _UNSIGNED in text:
        raise UserError(f"cannot read the quantized type {text}", hint="store its codes as signed")
    return text


def _refused(reason: str, op: Op) -> UserError:
    return UserError(
        f"a tensor of !quant.uniform with unsigned storage: {reason}",
        op=string_attr(op, "sym_name") or op.name,
        hint="store its codes as signed, with 2^(bits - 1) less in the zero point",
    )


QUANTIZE, DEQUANTIZE = "stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"
_NARROW = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
_NARROW_TYPE = re.compile(
    r"!quant\.uniform<(?P<storage>[^:>]*(?:<[^>]*>)?):(?P<float>bf16|f16)"
    r"(?P<axes>(?::\d+|:\{[^}]*\})?), (?P<numbers>[^<>]*)>"
)
_SCALE = re.compile(r"(?<![:\w.+-])-?\d[\w.+-]*")  # not the zero point after a colon


def to_float32(ops: Iterable[Any]) -> None:
    """Rewrites the ops and types in place; quantized types are between these two ops by now.

    Args:
        ops: all ops of a module."""
    for op in [op.operation for op in ops]:
        if op.name == QUANTIZE and _NARROW_TYPE.search(str(op.results[0].type)):
            with at(op):
                op.operands[0] = OPS.convert(op.operands[0], np.float32)
        if op.name == DEQUANTIZE and dtype_of(op.results[0]) in _NARROW.values():
            narrow, result = dtype_of(op.results[0]), op.results[0]
            result.set_type(tensor_type(shape_of(result), np.float32))
            with at(op, after=True):
                value = OPS.convert(result, narrow)
            result.replace_all_uses_except(value, value.owner.operation)
        for value in op.results:
            if _NARROW_TYPE.search(text := str(value.type)):
                value.set_type(ir.Type.parse(_NARROW_TYPE.sub(_in_float32, text)))


def _in_float32(found: re.Match[str]) -> str:
    dtype = _NARROW[found["float"]]

    def rounded(number: re.Match[str]) -> str:
        return repr(float(np.asarray(float(number[0]), dtype)))

    numbers = _SCALE.sub(rounded, found["numbers"])
    return f"!quant.uniform<{found['storage']}:f32{found['axes']}, {numbers}>"
