"""Matrix products of ONNX Runtime (`com.microsoft`) whose operands are codes, or become codes."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators.products import matmul
from jq.frontends.onnx.operators.quantize import dynamic, product_ratio, requantized
from jq.frontends.onnx.quantized import dequantize, unit
from jq.frontends.onnx.registry import MICROSOFT, Array, Call, operator
from jq.frontends.onnx.values import Codes, as_jax, plain

UINT8 = np.dtype(np.uint8)


@operator("QGemm", domain=MICROSOFT, codes=True)
def qgemm(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    c: Array = None,
    y_scale: Array = None,
    y_zero: Array = None,
    *,
    transA: int = 0,
    transB: int = 0,
    alpha: float = 1.0,
    node: Call,
) -> Any:
    """`c` is int32, in steps of both scales together; float without a scale of the result."""
    where = node.node.where
    left = unit(a, a_zero, name=where)
    right = unit(b, b_zero, axis=0 if transB else 1, name=where)
    y = matmul(left.T if transA else left, right.T if transB else right)
    y = y if c is None else y + jnp.asarray(plain(c)).astype(np.float32)
    ratio = product_ratio(a_scale, b_scale, y_scale, alpha)
    if y_scale is None:
        return y * ratio
    none = np.zeros((), a.dtype)
    return requantized(y, ratio, none if y_zero is None else y_zero, where)


@operator("MatMulIntegerToFloat", domain=MICROSOFT, codes=True)
def matmul_integer_to_float(
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero: Array = None,
    b_zero: Array = None,
    bias: Array = None,
    *,
    node: Call,
) -> Array:
    where = node.node.where
    left = dequantize(a, a_scale, a_zero, axis=len(a.shape) - 2, name=where)
    right = dequantize(b, b_scale, b_zero, axis=len(b.shape) - 1, name=where)
    y = matmul(left, right)
    return y if bias is None else y + plain(bias)


@operator("DynamicQuantizeMatMul", domain=MICROSOFT, codes=True)
def dynamic_quantize_matmul(
    a: Array, b: Array, b_scale: Array, b_zero: Array = None, bias: Array = None, *, node: Call
) -> Array:
    where = node.node.where
    codes, scale, zero = dynamic(as_jax(a), where)
    left = dequantize(codes, scale, Codes(zero, UINT8), name=where)
    right = dequantize(b, b_scale, b_zero, axis=len(b.shape) - 1, name=where)
    y = matmul(left, right)
    return y if bias is None else y + plain(bias)
