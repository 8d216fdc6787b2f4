"""Quantized operators of the standard, each as what it is defined to be: dequantize, compute,
quantize.

What they compute in integers the compiler finds by the same passes as everywhere: their parameters
are markers.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.operators.convolutions import convolve
from jq.frontends.onnx.operators.products import matmul
from jq.frontends.onnx.operators.windows import Windowing
from jq.frontends.onnx.quantized import dequantize, quantize, unit
from jq.frontends.onnx.registry import Array, Call, operator
from jq.frontends.onnx.tensors import numpy_type
from jq.frontends.onnx.values import Codes, as_jax, best_known, plain


@operator("QuantizeLinear", codes=True)
@operator("QuantizeLinear", domain="com.microsoft", codes=True)
def quantize_linear(
    x: Array,
    y_scale: Array,
    y_zero_point: Array = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
    node: Call,
) -> Any:
    dtype = np.dtype(np.uint8)
    if y_zero_point is not None:
        dtype = np.dtype(y_zero_point.dtype)
    elif output_dtype:
        dtype = numpy_type(output_dtype)
    return quantize(
        x,
        y_scale,
        y_zero_point,
        dtype,
        axis=axis,
        block=block_size,
        saturate=bool(saturate),
        name=node.node.where,
    )


@operator("DequantizeLinear", codes=True)
@operator("DequantizeLinear", domain="com.microsoft", codes=True)
def dequantize_linear(
    x: Array,
    x_scale: Array,
    x_zero_point: Array = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    node: Call,
) -> Array:
    kind = numpy_type(output_dtype) if output_dtype else np.dtype(x_scale.dtype)
    return dequantize(
        x, x_scale, x_zero_point, axis=axis, block=block_size, dtype=kind, name=node.node.where
    )


@operator("DynamicQuantizeLinear", codes=True)
def dynamic_quantize_linear(x: Array, *, node: Call) -> Any:
    return dynamic(as_jax(x), node.node.where)


def dynamic(x: Any, name: str) -> tuple[Codes, Any, Codes]:
    """Codes, scale and zero point, of uint8, for the range of the tensor itself, 0 included."""
    zero = jnp.zeros((), x.dtype)
    low, high = jnp.minimum(x.min(), zero), jnp.maximum(x.max(), zero)
    # A range that depends on data: XLA turns a division by a constant into a product.
    scale = (high - low) / lax.optimization_barrier(jnp.asarray(255, x.dtype))
    scale = jnp.where(high == low, jnp.ones((), x.dtype), scale)
    point = jnp.round(jnp.clip(-low / scale, 0, 255))
    kind = np.dtype(np.uint8)
    offset = Codes((point.astype(np.int32) - 128).astype(np.int8), kind)
    return quantize(x, scale, offset, kind, name=name), scale, offset


@operator("QLinearMatMul", codes=True)
def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    *,
    node: Call,
) -> Any:
    name = node.node.where
    left = unit(a, a_zero_point, axis=len(a.shape) - 2, name=name)
    right = unit(b, b_zero_point, axis=len(b.shape) - 1, name=name)
    rows = best_known(a_scale)  # a number, or one a row
    rows = rows[..., None] if rows.ndim == 1 and rows.size > 1 else rows
    ratio = product_ratio(rows, b_scale, y_scale)
    return requantized(matmul(left, right), ratio, y_zero_point, name)


@operator("QLinearConv", codes=True)
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    b: Array = None,
    *,
    window: Windowing,
    group: int = 1,
    node: Call,
) -> Any:
    """The bias is int32, in steps of both scales together."""
    name = node.node.where
    left, right = unit(x, x_zero_point, name=name), unit(w, w_zero_point, axis=0, name=name)
    y = convolve(left, right, window, group)
    channels = (-1, *[1] * (y.ndim - 2))
    if b is not None:
        y = y + jnp.asarray(plain(b)).astype(np.float32).reshape(channels)
    ratio = product_ratio(x_scale, w_scale, y_scale)
    ratio = ratio.reshape(channels) if ratio.size > 1 else ratio
    return requantized(y, ratio, y_zero_point, name)


def product_ratio(a_scale: Any, b_scale: Any, y_scale: Any = None, alpha: float = 1.0) -> Any:
    """Factor of a product of codes, rounded as ONNX Runtime does: first the scales of both sides,
    then the one of the result."""
    both = best_known(a_scale) * np.float32(alpha) * best_known(b_scale)
    return both if y_scale is None else both / best_known(y_scale)


def requantized(sums: Any, ratio: Any, zero: Any, name: str) -> Any:
    """The codes of `sums * ratio`: one factor, and no division by the result's scale, which would
    round once more."""
    one = np.ones((), np.float32)
    return quantize(sums * ratio, one, zero, np.dtype(zero.dtype), name=name)
