"""TFLite's operators whose codes LiteRT's kernels compute otherwise than ONNX's: all that they are
made of says so (`jq.ir.decisions.ROUNDED`). Images have their channels last."""

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.operators.windows import Window, Windowing, window_counts
from jq.frontends.onnx.registry import TFLITE, Array, Call, Known, operator, operators


def _unit_rows(x: Array) -> Array:
    squares = jnp.sum(x * x, -1, keepdims=True)
    return x * lax.rsqrt(jnp.maximum(squares, np.asarray(1e-12, x.dtype)))


def _squared_difference(x: Array, y: Array) -> Array:
    apart = x - y
    return apart * apart


def _twice_normal(x: Array, tanh: bool) -> Array:
    if tanh:
        return 1 + jnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    return lax.erfc(x * -math.sqrt(0.5))


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Atan2": lambda y, x: jnp.arctan2(y, x),
    "BatchMatMul": jnp.matmul,  # MatMul is FULLY_CONNECTED
    # Sums, in place of choices between codes that were rescaled on their own.
    "Elu": lambda x: jnp.maximum(x, 0) + jnp.expm1(jnp.minimum(x, 0)),
    "FloorDiv": lambda x, y: jnp.floor_divide(x, y),
    "FloorMod": lambda x, y: jnp.mod(x, y),
    "LeakyRelu": lambda x, *, alpha: jnp.maximum(x, 0) + jnp.minimum(x, 0) * alpha,
    "Gelu": lambda x, *, approximate: 0.5 * x * _twice_normal(x, approximate == "tanh"),
    "HardSwish": lambda x: x * jnp.clip(x + 3, 0, 6) / 6,
    "L2Normalization": _unit_rows,
    "Log": lambda x: jnp.log(jnp.maximum(x, 0)),  # numbers below 0 are as 0
    "MatMul": jnp.matmul,
    "PRelu": lambda x, slope: jnp.where(x < 0, x * slope, jnp.maximum(x, 0)),
    "Rsqrt": lambda x: lax.rsqrt(x),
    "SquaredDifference": _squared_difference,
}
operators(FUNCTIONS, domain=TFLITE)


@operator("Mean", domain=TFLITE)
def mean(x: Array, axes: Known) -> Array:
    total = jnp.sum(x, tuple(axes.tolist()))
    return total / np.asarray(math.prod(x.shape) // max(1, total.size), x.dtype)


@operator("AveragePool", domain=TFLITE)
def average_pool(x: Array, *, node: Call) -> Array:
    batch, *sizes, channels = x.shape
    places = Window((batch, channels, *sizes), Windowing.of(node), 0)
    window, strides = ((1, *given, 1) for given in (places.kernel, places.strides))
    zero, pads = np.zeros((), x.dtype), [(0, 0), *places.pads, (0, 0)]
    total = lax.reduce_window(x, zero, lax.add, window, strides, pads)
    counts = np.moveaxis(window_counts(places, sizes, padded=False), 1, -1)
    counts = counts if counts.min(initial=1) < counts.max(initial=1) else counts.flat[0]
    return total / np.asarray(counts, x.dtype)


@operator("ArgMax", "ArgMin", domain=TFLITE)
def place(x: Array, *, axis: int, node: Call) -> Array:
    """The place of an extreme in 32 bits, as no operator of ONNX has it."""
    function = lax.argmax if node.node.op == "ArgMax" else lax.argmin
    return function(x, axis % x.ndim, np.int32)


@operator("ResizeBilinear", domain=TFLITE)
def resize_bilinear(x: Array, sizes: Known, *, half: int, corners: int) -> Array:
    """Codes of images between codes, by weights of 10 bits; https://github.com/google-ai-edge/LiteRT
    (tflite/kernels/internal/reference/resize_bilinear.h)."""
    total = x.astype(np.int32 if x.dtype == np.int8 else np.int64)
    for axis, m in enumerate(sizes.tolist(), 1):
        n, less = x.shape[axis], int(corners and m > 1)
        step = (((n - less) << 10) + (m - less) // 2) // (m - less)
        at = np.arange(m) * step + (step // 2 - (1 << 9) if half else 0)
        low = np.clip(at >> 10, 0, n - 1)
        high, part = np.minimum((at + 1023) >> 10, n - 1), at - (low << 10)
        part = part.astype(total.dtype).reshape(-1, *[1] * (x.ndim - 1 - axis))
        first, second = (jnp.take(total, i, axis) for i in (low, high))
        total = first * (1024 - part) + second * part
    return (jnp.sign(total) * ((jnp.abs(total) + (1 << 19)) >> 20)).astype(x.dtype)
