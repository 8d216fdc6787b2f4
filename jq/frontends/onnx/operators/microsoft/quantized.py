"""Quantized operators of ONNX Runtime (`com.microsoft`) that dequantize, compute and quantize."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx import pairs
from jq.frontends.onnx.operators.quantize import qlinear_conv
from jq.frontends.onnx.operators.reduce import along
from jq.frontends.onnx.operators.windows import Window, Windowing, average_in_order
from jq.frontends.onnx.pairs import Scaled
from jq.frontends.onnx.quantized import dequantize, quantize, quantize_shifted
from jq.frontends.onnx.registry import MICROSOFT, Array, Call, operator
from jq.frontends.onnx.values import Codes, best_known, bits_of, known, plain, to_signed

UINT8 = np.dtype(np.uint8)


@operator("QLinearConv", domain=MICROSOFT, codes=True)
def qlinear_conv_microsoft(
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
    channels_last: int = 0,
    node: Call,
) -> Any:
    """That of the standard, also with the channels of `x` and of the result on the last axis."""
    rest = x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b
    if not channels_last:
        return qlinear_conv(x, *rest, window=window, group=group, node=node)
    front = Codes(jnp.moveaxis(jnp.asarray(to_signed(x)), -1, 1), np.dtype(x.dtype))
    y = qlinear_conv(front, *rest, window=window, group=group, node=node)
    return Codes(jnp.moveaxis(y.signed, 1, -1), y.dtype)


def _kind(zero: Any, x: Any) -> np.dtype[Any]:
    return np.dtype(x.dtype if zero is None else zero.dtype)


def _binary(name: str, function: Callable[[Any, Any], Any], of_codes: Callable[..., Codes]) -> None:
    """Defines one; `of_codes` is that of bytes whose scales are constants."""

    @operator(name, domain=MICROSOFT, codes=True)
    def apply(
        a: Array,
        a_scale: Array,
        a_zero: Array,
        b: Array,
        b_scale: Array,
        b_zero: Array,
        y_scale: Array,
        y_zero: Array = None,
        *,
        node: Call,
    ) -> Any:
        where, kind = node.node.where, _kind(y_zero, a)
        sides = (a, a_scale, a_zero), (b, b_scale, b_zero)
        numbers = [_scaled(_kind(zero, x), scale, zero) for x, scale, zero in sides]
        numbers.append(_scaled(kind, y_scale, y_zero))
        if all(n is not None for n in numbers):
            return of_codes(a, b, tuple(numbers), where)
        left, right = (dequantize(*side, name=where) for side in sides)
        return quantize(function(left, right), y_scale, y_zero, kind, name=where)


def _scaled(dtype: np.dtype[Any], scale: Any, zero: Any) -> Scaled | None:
    """None where a scale or zero point is computed, or the type has other than 8 bits."""
    factor, point = known(scale), np.zeros((), np.int32) if zero is None else known(zero)
    if factor is None or point is None or factor.size != 1 or bits_of(dtype) != 8:
        return None
    one = np.float32(factor.reshape(-1)[0])
    usable = np.isfinite(one) and one > 0 and point.size == 1
    return Scaled(dtype, one, int(point.reshape(()))) if usable else None


_binary("QLinearAdd", jnp.add, pairs.add)
_binary("QLinearMul", jnp.multiply, pairs.multiply)


def _unary(name: str, function: Callable[..., Any], *attributes: str, whole: bool = False) -> None:
    """`whole`: ONNX Runtime takes the inverse of the result's scale as a whole number."""

    @operator(name, domain=MICROSOFT, codes=True)
    def apply(
        x: Array, x_scale: Array, x_zero: Array, y_scale: Array, y_zero: Array = None, *, node: Call
    ) -> Any:
        where = node.node.where
        given = {k: v for k, v in node.attributes.items() if k in attributes}
        y = function(dequantize(x, x_scale, x_zero, name=where), **given)
        step = _cut_inverse(best_known(y_scale)) if whole else y_scale
        return quantize(y, step, y_zero, _kind(y_zero, x), name=where)


def _cut_inverse(scale: Any) -> Any:
    """The scale whose inverse is the whole number below."""
    one = np.float32(1)
    return one / np.floor(one / scale).astype(np.float32)


def _leaky(x: Any, alpha: float = 0.01) -> Any:
    return jnp.where(x < 0, x * np.float32(alpha), x)


def _global(x: Any, channels_last: int = 0) -> Any:
    axes = range(1, x.ndim - 1) if channels_last else range(2, x.ndim)
    return jnp.mean(x, tuple(axes), keepdims=True)


_unary("QLinearSigmoid", jax.nn.sigmoid)
_unary("QLinearLeakyRelu", _leaky, "alpha")
_unary("QLinearSoftmax", partial(along, jax.nn.softmax), "axis", "opset", whole=True)
_unary("QLinearGlobalAveragePool", _global, "channels_last")


@operator("QLinearAveragePool", domain=MICROSOFT, codes=True)
def qlinear_average_pool(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    y_scale: Array,
    y_zero: Array = None,
    *,
    window: Windowing,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    channels_last: int = 0,
    node: Call,
) -> Any:
    """As ONNX Runtime does it, which adds the zero point before the average is rounded."""
    where = node.node.where
    front = dequantize(x, x_scale, x_zero, name=where)
    front = jnp.moveaxis(front, -1, 1) if channels_last else front
    places = Window(front.shape, replace(window, dilations=None), ceil_mode)
    y = average_in_order(front, places, bool(count_include_pad))
    y = jnp.moveaxis(y, 1, -1) if channels_last else y
    return quantize_shifted(y, y_scale, y_zero, _kind(y_zero, x), name=where)


@operator("QLinearConcat", domain=MICROSOFT, codes=True)
def qlinear_concat(y_scale: Array, y_zero: Array, *parts: Array, axis: int, node: Call) -> Any:
    """`parts` are tensor, scale and zero point of each input."""
    where = node.node.where
    floats = [dequantize(*parts[i : i + 3], name=where) for i in range(0, len(parts), 3)]
    y = jnp.concatenate(floats, axis=axis)
    return quantize(y, y_scale, y_zero, np.dtype(y_zero.dtype), name=where)


@operator("QLinearWhere", domain=MICROSOFT, codes=True)
def qlinear_where(
    condition: Array,
    x: Array,
    x_scale: Array,
    x_zero: Array,
    y: Array,
    y_scale: Array,
    y_zero: Array,
    z_scale: Array,
    z_zero: Array,
    *,
    node: Call,
) -> Any:
    where = node.node.where
    left = dequantize(x, x_scale, x_zero, name=where)
    right = dequantize(y, y_scale, y_zero, name=where)
    chosen = jnp.where(plain(condition), left, right)
    return quantize(chosen, z_scale, z_zero, np.dtype(z_zero.dtype), name=where)
