"""Quantized operators of ONNX Runtime (`com.microsoft`) that dequantize, compute and quantize."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx import pairs
from jq.frontends.onnx.operators.quantize import CONVOLVED, qlinear_conv
from jq.frontends.onnx.operators.reduce import along
from jq.frontends.onnx.operators.windows import Window, Windowing, average_in_order
from jq.frontends.onnx.pairs import Scaled
from jq.frontends.onnx.quantized import dequantize, quantize, quantize_shifted, real
from jq.frontends.onnx.registry import Array, Call, Given, microsoft
from jq.frontends.onnx.values import Codes, best_known, bits_of, known, plain, to_signed

X = "x_scale[] x_zero_point[]"
Y = "y_scale[] y_zero_point[]?"
TWO = f"a a_scale[] a_zero_point[] b b_scale[] b_zero_point[] {Y}"
POOLED = f"x {X} {Y}; ceil_mode=0 count_include_pad=0 channels_last=0"
CHOSEN = f"condition x {X} y y_scale[] y_zero_point[] z_scale[] z_zero_point[]"


def _kind(o: Given, name: str, like: Any = None) -> np.dtype[Any]:
    """The type of an operand's codes: that of its zero point, or that of another tensor."""
    zero = getattr(o, f"{name}_zero_point")
    return np.dtype((like if zero is None else zero).dtype)


def _quantized(o: Given, y: Any, like: Any, name: str = "y") -> Any:
    scale, zero = getattr(o, f"{name}_scale"), getattr(o, f"{name}_zero_point")
    return quantize(y, scale, zero, _kind(o, name, like), name=o.where)


@microsoft("QLinearConv", codes=True, takes=f"{CONVOLVED} channels_last=0")
def qlinear_conv_microsoft(o: Given) -> Any:
    """The standard's, also with the channels of `x` and of the result on the last axis."""
    if not o.channels_last:
        return qlinear_conv(o)
    front = Codes(jnp.moveaxis(jnp.asarray(to_signed(o.x)), -1, 1), np.dtype(o.x.dtype))
    y = qlinear_conv(o.but(x=front))
    return Codes(jnp.moveaxis(y.signed, 1, -1), y.dtype)


def _binary(name: str, function: Callable[[Any, Any], Any], of_codes: Callable[..., Codes]) -> None:
    """Defines one; `of_codes` is that of bytes whose scales are constants."""

    @microsoft(name, codes=True, takes=TWO)
    def apply(o: Given) -> Any:
        numbers = [_scaled(o, "a", o.a), _scaled(o, "b", o.b), _scaled(o, "y", o.a)]
        if all(n is not None for n in numbers):
            return of_codes(o.a, o.b, tuple(numbers), o.where)
        return _quantized(o, function(real(o, "a"), real(o, "b")), o.a)


def _scaled(o: Given, name: str, like: Any) -> Scaled | None:
    """None where a scale or zero point is computed, or the type has other than 8 bits."""
    dtype, zero = _kind(o, name, like), getattr(o, f"{name}_zero_point")
    factor = known(getattr(o, f"{name}_scale"))
    point = np.zeros((), np.int32) if zero is None else known(zero)
    if factor is None or point is None or factor.size != 1 or bits_of(dtype) != 8:
        return None
    one = np.float32(factor.reshape(-1)[0])
    usable = np.isfinite(one) and one > 0 and point.size == 1
    return Scaled(dtype, one, int(point.reshape(()))) if usable else None


_binary("QLinearAdd", jnp.add, pairs.add)
_binary("QLinearMul", jnp.multiply, pairs.multiply)


def _unary(
    name: str, function: Callable[..., Any], *attributes: str, whole: bool = False, shape: str = ""
) -> None:
    """`whole`: ONNX Runtime takes the inverse of the result's scale as a whole number."""
    one = np.float32(1)
    listed = " ".join(f"{attribute}?" for attribute in attributes)

    @microsoft(name, codes=True, takes=f"x{shape} {X} {Y}; {listed}")
    def apply(o: Given) -> Any:
        given = {k: v for k, v in vars(o).items() if k in attributes and v is not None}
        y = function(real(o, "x"), **given)
        if whole:
            inverse = np.floor(one / best_known(o.y_scale)).astype(np.float32)
            o = o.but(y_scale=one / inverse)
        return _quantized(o, y, o.x)


def _global(x: Any, channels_last: int = 0) -> Any:
    axes = range(1, x.ndim - 1) if channels_last else range(2, x.ndim)
    return jnp.mean(x, tuple(axes), keepdims=True)


_unary("QLinearSigmoid", jax.nn.sigmoid)
_unary(
    "QLinearLeakyRelu", lambda x, alpha=0.01: jnp.where(x < 0, x * np.float32(alpha), x), "alpha"
)
_unary("QLinearSoftmax", partial(along, jax.nn.softmax), "axis", "opset", whole=True)
_unary("QLinearGlobalAveragePool", _global, "channels_last", shape="[N C L ...]")


@microsoft("QLinearAveragePool", codes=True, takes=POOLED)
def qlinear_average_pool(o: Given) -> Any:
    """The average as ONNX Runtime has it: the zero point is added before it is rounded."""
    front = real(o, "x")
    front = jnp.moveaxis(front, -1, 1) if o.channels_last else front
    window = replace(Windowing.of(o.node), dilations=None)
    places = Window(front.shape, window, o.ceil_mode)
    y = average_in_order(front, places, bool(o.count_include_pad))
    y = jnp.moveaxis(y, 1, -1) if o.channels_last else y
    return quantize_shifted(y, o.y_scale, o.y_zero_point, _kind(o, "y", o.x))


@microsoft("QLinearConcat", codes=True)
def qlinear_concat(y_scale: Array, y_zero: Array, *parts: Array, axis: int, node: Call) -> Any:
    """`parts` are tensor, scale and zero point of each input."""
    floats = [dequantize(*parts[i : i + 3], name=node.where) for i in range(0, len(parts), 3)]
    y = jnp.concatenate(floats, axis=axis)
    return quantize(y, y_scale, y_zero, np.dtype(y_zero.dtype), name=node.where)


@microsoft("QLinearWhere", codes=True, takes=CHOSEN)
def qlinear_where(o: Given) -> Any:
    chosen = jnp.where(plain(o.condition), real(o, "x"), real(o, "y"))
    return _quantized(o, chosen, o.x, "z")
