"""Products of less than 8 bits, which XLA's CPU compiler refuses, in types that it has."""

from __future__ import annotations

from typing import Any

import numpy as np

from jq.ir import Op, Program, at, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.build import attributes_of

PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")
INTEGERS, FLOATS = np.dtype(np.int32), np.dtype(np.float32)


def widen_narrow_products(program: Program) -> None:
    """All operands become int32 or float32 first, in which every product of theirs is exact, and
    what is asked for in fewer bits is made of the sum."""
    for op in list(program.walk()):
        if op.operation.name in PRODUCTS and any(_narrow(v) for v in op.operation.operands):
            _widen(op)


def _narrow(value: ir.Value) -> bool:
    name = str(ir.RankedTensorType(value.type).element_type)
    return name.startswith(("i4", "ui4", "i2", "ui2", "f4", "f6"))


def _widen(op: Op) -> None:
    result = op.results[0]
    wide = _wide(result)
    with at(op):
        operands = [stablehlo.convert(tensor_type(shape_of(v), wide), v) for v in op.operands]
        kept = {k: v for k, v in attributes_of(op).items() if k != "algorithm"}
        kind = tensor_type(shape_of(result), wide)
        made = ir.Operation.create(op.operation.name, [kind], operands, kept).result
        result.replace_all_uses_with(stablehlo.convert(result.type, made))
    op.operation.erase()


def _wide(result: ir.Value) -> np.dtype[Any]:
    """The type of the sum: the result's own, if it has 32 bits or more."""
    own = dtype_of(result)
    if own.itemsize >= INTEGERS.itemsize:
        return own
    whole = isinstance(ir.RankedTensorType(result.type).element_type, ir.IntegerType)
    return INTEGERS if whole else FLOATS
