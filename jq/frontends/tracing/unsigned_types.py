"""Quantized types with unsigned storage become the signed ones that stand for the same numbers.

    !quant.uniform<u8:f32, 0.05:131>   ->   !quant.uniform<i8:f32, 0.05:3>

jaxlib's arithmetic for quantized types takes the codes of both for signed: an unsigned one from
half of its range on would be cut off. Constants are shifted with their zero points.
"""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.ir import Op, ir, shape_of
from jq.ir.build import string_attr

_TYPE = re.compile(
    r"!quant\.uniform<u(?P<bits>\d+)(?:<(?P<low>\d+):(?P<high>\d+)>)?"
    r"(?P<rest>:\w+(?::\d+)?), (?P<numbers>[^<>]*)>"
)
_NUMBER = re.compile(r"([^\s{},:]+)(?::(-?\d+))?")
_UNSIGNED = "!quant.uniform<u"


def to_signed(module: ir.Module, ops: Iterable[Any]) -> None:
    """Rewrites the types of all values, in place; `ops` are all of the module.

    Raises:
        UserError: codes enter or leave the program, or are taken for other data.
    """
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
