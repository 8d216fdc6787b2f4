"""Quantized types that stand for bfloat16 or float16 become those that stand for float32.

    %q = uniform_quantize %x : tensor<4xbf16> -> tensor<4x!quant.uniform<i8:bf16, 0.05:3>>
    ->
    %f = convert %x : tensor<4xbf16> -> tensor<4xf32>
    %q = uniform_quantize %f : tensor<4xf32> -> tensor<4x!quant.uniform<i8:f32, 0.05004883:3>>

and back after a uniform_dequantize: jaxlib has the arithmetic for float32 alone. Scales are
rounded to the type that they had. What a code of 8 bits stands for is rounded once, to that type,
which is what StableHLO's own arithmetic gives; a quotient is rounded to float32 instead.
"""

import re
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from jq.ir import Op, at, dtype_of, ir, shape_of, tensor_type
from jq.ir.arrays import StableHloOps

OPS = StableHloOps()
QUANTIZE, DEQUANTIZE = "stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"
_NARROW = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
_TYPE = re.compile(
    r"!quant\.uniform<(?P<storage>[^:>]*(?:<[^>]*>)?):(?P<float>bf16|f16)"
    r"(?P<axes>(?::\d+|:\{[^}]*\})?), (?P<numbers>[^<>]*)>"
)
_SCALE = re.compile(r"(?<![:\w.+-])-?\d[\w.+-]*")  # not the zero point after a colon


def to_float32(ops: Iterable[Any]) -> None:
    """Rewrites the ops and types in place; quantized types are between these two ops by now.

    Args:
        ops: all ops of a module.
    """
    for op in [op.operation for op in ops]:
        if op.name == QUANTIZE and _TYPE.search(str(op.results[0].type)):
            with at(op):
                op.operands[0] = OPS.convert(op.operands[0], np.float32)
        if op.name == DEQUANTIZE and dtype_of(op.results[0]) in _NARROW.values():
            _widen_result(op)
        for value in op.results:
            _retype(value)


def _widen_result(op: Op) -> None:
    result = op.results[0]
    narrow = dtype_of(result)
    result.set_type(tensor_type(shape_of(result), np.float32))
    with at(op, after=True):
        value = OPS.convert(result, narrow)
    result.replace_all_uses_except(value, value.owner.operation)


def _retype(value: ir.Value) -> None:
    text = str(value.type)
    if _TYPE.search(text):
        value.set_type(ir.Type.parse(_TYPE.sub(_widened, text)))


def _widened(found: re.Match[str]) -> str:
    dtype = _NARROW[found["float"]]

    def rounded(number: re.Match[str]) -> str:
        return repr(float(np.asarray(float(number[0]), dtype)))

    numbers = _SCALE.sub(rounded, found["numbers"])
    return f"!quant.uniform<{found['storage']}:f32{found['axes']}, {numbers}>"
