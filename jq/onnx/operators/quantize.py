"""Quantized operators of the standard, each as what it is defined to be: dequantize, compute,
quantize.

What they compute in integers the compiler finds by the same passes as everywhere: their parameters
are markers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.onnx.operators.products import matmul
from jq.onnx.operators.windows import convolve
from jq.onnx.quantized import dequantize, quantize, unit
from jq.onnx.registry import Array, Call, operator
from jq.onnx.tensors import numpy_type
from jq.onnx.values import Codes, Sums, as_jax, known, plain


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
    """uint8 codes with the range of the tensor itself, 0 included."""
    codes, scale, zero = dynamic(as_jax(x), node.node.where)
    return codes, scale, Codes(zero, np.dtype(np.uint8))


def dynamic(x: Any, name: str) -> tuple[Codes, Any, Any]:
    """Codes, scale and signed zero point (i8 scalar)."""
    zero = jnp.zeros((), x.dtype)
    low, high = jnp.minimum(x.min(), zero), jnp.maximum(x.max(), zero)
    # A range that depends on data: XLA turns a division by a constant into a product.
    scale = (high - low) / lax.optimization_barrier(jnp.asarray(255, x.dtype))
    scale = jnp.where(high == low, jnp.ones((), x.dtype), scale)
    point = jnp.round(jnp.clip(-low / scale, 0, 255))
    signed = (point.astype(np.int32) - 128).astype(np.int8)
    codes = quantize(x, scale, Codes(signed, np.dtype(np.uint8)), np.dtype(np.uint8), name=name)
    return codes, scale, signed


@operator("MatMulInteger", codes=True)
def matmul_integer(
    a: Array, b: Array, a_zero_point: Array = None, b_zero_point: Array = None, *, node: Call
) -> Any:
    """Zero points are numbers, or one a row of `a` and one a column of `b`."""
    name = node.node.where

    def integers() -> Any:
        left, right = _minus(a, a_zero_point, 0), _minus(b, b_zero_point, 1)
        return jnp.matmul(left, right, preferred_element_type=np.int32)

    def floats() -> Any:
        left = unit(a, a_zero_point, axis=len(a.shape) - 2, name=name)
        return matmul(left, unit(b, b_zero_point, axis=len(b.shape) - 1, name=name))

    if min(len(a.shape), len(b.shape)) < 2:
        return integers()
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return Sums(integers, floats, (*batch, a.shape[-2], b.shape[-1]))


def _minus(x: Any, zero: Any, side: int) -> Any:
    """`x - zero` in 32 bits; `side` 0: one a row, 1: one a column."""
    wide = jnp.asarray(plain(x)).astype(np.int32)
    if zero is None:
        return wide
    point = jnp.asarray(plain(zero)).astype(np.int32)
    if point.size == 1:
        return wide - point.reshape(())
    return wide - (point[:, None] if point.ndim == 1 and side == 0 else point)


@operator("ConvInteger", codes=True)
def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array = None,
    w_zero_point: Array = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    pads: Any = None,
    strides: Any = None,
    kernel_shape: Any = None,
    node: Call,
) -> Any:
    options: dict[str, Any] = {
        "auto_pad": auto_pad,
        "dilations": dilations,
        "group": group,
        "pads": pads,
        "strides": strides,
    }
    name = node.node.where

    def integers() -> Any:
        left = _minus(x, x_zero_point, 0)
        right = jnp.asarray(plain(w)).astype(np.int32)
        if w_zero_point is not None:
            zero = jnp.asarray(plain(w_zero_point)).astype(np.int32)
            right = right - zero.reshape([-1, *[1] * (right.ndim - 1)] if zero.size > 1 else ())
        return convolve(left, right, dtype=np.int32, **options)

    def floats() -> Any:
        left = unit(x, x_zero_point, name=name)
        return convolve(left, unit(w, w_zero_point, axis=0, name=name), **options)

    return Sums(integers, floats, _shape(x, w, options))


def _shape(x: Any, w: Any, options: dict[str, Any]) -> tuple[int, ...]:
    spec = [jax.ShapeDtypeStruct(v.shape, np.float32) for v in (x, w)]
    return tuple(jax.eval_shape(lambda a, b: convolve(a, b, **options), *spec).shape)


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
    left = dequantize(a, a_scale, a_zero_point, axis=len(a.shape) - 2, name=name)
    right = dequantize(b, b_scale, b_zero_point, axis=len(b.shape) - 1, name=name)
    return quantize(
        matmul(left, right), y_scale, y_zero_point, np.dtype(y_zero_point.dtype), name=name
    )


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
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    pads: Any = None,
    strides: Any = None,
    kernel_shape: Any = None,
    node: Call,
) -> Any:
    """The bias is int32, in steps of both scales together."""
    name = node.node.where
    left = dequantize(x, x_scale, x_zero_point, name=name)
    right = dequantize(w, w_scale, w_zero_point, axis=0, name=name)
    y = convolve(
        left, right, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides
    )
    if b is not None:
        step = _data(x_scale) * _data(w_scale)
        bias = jnp.asarray(plain(b)).astype(np.float32) * step
        y = y + bias.reshape(-1, *[1] * (y.ndim - 2))
    return quantize(y, y_scale, y_zero_point, np.dtype(y_zero_point.dtype), name=name)


def _data(x: Any) -> Any:
    data = known(x)
    return data if data is not None else plain(x)
