"""Quantized operators of the standard, each as it is defined: dequantize, compute, quantize.

Their parameters are markers, from which the usual passes find the integers to compute."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.operators.convolutions import convolve
from jq.frontends.onnx.operators.products import matmul
from jq.frontends.onnx.operators.windows import Windowing
from jq.frontends.onnx.quantized import dequantize, quantize, units
from jq.frontends.onnx.registry import Array, Given, microsoft, operator, operators
from jq.frontends.onnx.tensors import numpy_type
from jq.frontends.onnx.values import Codes, as_jax, best_known, plain

BLOCKED = "axis=1 block_size=0 output_dtype=0"
QUANTIZE = f"x y_scale y_zero_point?; {BLOCKED} saturate=1"
DEQUANTIZE = f"x x_scale x_zero_point?; {BLOCKED}"
CONVOLVED = (
    "x[N C L ...] x_scale[] x_zero_point[] w w_scale[/ M] w_zero_point[/ M]"
    " y_scale[] y_zero_point[] b[M]?; group=1"
)


@operator("QuantizeLinear", codes=True, takes=QUANTIZE)
@microsoft("QuantizeLinear", codes=True, takes=QUANTIZE)
def quantize_linear(o: Given) -> Any:
    kind = np.dtype(np.uint8)
    if o.y_zero_point is not None:
        kind = np.dtype(o.y_zero_point.dtype)
    elif o.output_dtype:
        kind = numpy_type(o.output_dtype)
    how = {"axis": o.axis, "block": o.block_size, "saturate": bool(o.saturate), "name": o.where}
    return quantize(o.x, o.y_scale, o.y_zero_point, kind, **how)


@operator("DequantizeLinear", codes=True, takes=DEQUANTIZE)
@microsoft("DequantizeLinear", codes=True, takes=DEQUANTIZE)
def dequantize_linear(o: Given) -> Array:
    kind = numpy_type(o.output_dtype) if o.output_dtype else np.dtype(o.x_scale.dtype)
    how = {"axis": o.axis, "block": o.block_size, "dtype": kind, "name": o.where}
    return dequantize(o.x, o.x_scale, o.x_zero_point, **how)


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


DYNAMIC = {"DynamicQuantizeLinear": lambda x, *, node: dynamic(as_jax(x), node.where)}
operators(DYNAMIC, codes=True)


@operator(
    "QLinearMatMul",
    codes=True,
    takes="a[... K] a_scale a_zero_point b[... K N / K] b_scale b_zero_point"
    " y_scale[] y_zero_point[]",
)
def qlinear_matmul(o: Given) -> Any:
    rows = best_known(o.a_scale)  # a number, or one a row
    rows = rows[..., None] if rows.ndim == 1 and rows.size > 1 else rows
    sums = matmul(units(o, "a", -2), units(o, "b", -1))
    return requantized(sums, product_ratio(rows, o.b_scale, o.y_scale), o.y_zero_point, o.where)


@operator("QLinearConv", codes=True, takes=CONVOLVED)
def qlinear_conv(o: Given) -> Any:
    """The bias is int32, in steps of both scales together."""
    y = convolve(units(o, "x"), units(o, "w", 0), Windowing.of(o.node), o.group)
    channels = (-1, *[1] * (y.ndim - 2))
    if o.b is not None:
        y = y + jnp.asarray(plain(o.b)).astype(np.float32).reshape(channels)
    ratio = product_ratio(o.x_scale, o.w_scale, o.y_scale)
    ratio = ratio.reshape(channels) if ratio.size > 1 else ratio
    return requantized(y, ratio, o.y_zero_point, o.where)


def product_ratio(a_scale: Any, b_scale: Any, y_scale: Any = None, alpha: float = 1.0) -> Any:
    """Factor of a product of codes, rounded as ONNX Runtime does: first the scales of both sides,
    then the one of the result."""
    both = best_known(a_scale) * np.float32(alpha) * best_known(b_scale)
    return both if y_scale is None else both / best_known(y_scale)


def requantized(sums: Any, ratio: Any, zero: Any, name: str) -> Any:
    """The codes of `sums * ratio`, one factor: dividing by the result's scale rounds again."""
    one = np.ones((), np.float32)
    return quantize(sums * ratio, one, zero, np.dtype(zero.dtype), name=name)
