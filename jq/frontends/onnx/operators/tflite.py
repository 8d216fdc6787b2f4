"""TFLite's operators whose codes LiteRT's reference kernels round otherwise than most: those of
ONNX, whose sums say so (`jq.ir.decisions.ROUNDED`). Images have their channels last."""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.base.from_jax import said
from jq.frontends.onnx.operators.windows import Window, Windowing, window_counts
from jq.frontends.onnx.registry import Array, Call, Known, operator
from jq.ir.decisions import ROUNDED

DOMAIN = "tflite"


@operator("MatMul", domain=DOMAIN)
def matmul(a: Array, b: Array) -> Array:
    with said(**{ROUNDED: "MatMul"}):
        return jnp.matmul(a, b)


@operator("PRelu", domain=DOMAIN)
def prelu(x: Array, slope: Array) -> Array:
    with said(**{ROUNDED: "PRelu"}):
        below = x * slope
    return jnp.where(x < 0, below, jnp.maximum(x, 0))


@operator("Mean", domain=DOMAIN)
def mean(x: Array, axes: Known) -> Array:
    with said(**{ROUNDED: "Mean"}):
        total = jnp.sum(x, tuple(axes.tolist()))
    return total / np.asarray(math.prod(x.shape) // max(1, total.size), x.dtype)


@operator("AveragePool", domain=DOMAIN)
def average_pool(x: Array, *, node: Call) -> Array:
    batch, *sizes, channels = x.shape
    places = Window((batch, channels, *sizes), Windowing.of(node), 0)
    window, strides = ((1, *given, 1) for given in (places.kernel, places.strides))
    with said(**{ROUNDED: "AveragePool"}):
        zero = np.zeros((), x.dtype)
        total = lax.reduce_window(x, zero, lax.add, window, strides, [(0, 0), *places.pads, (0, 0)])
    counts = np.moveaxis(window_counts(places, sizes, padded=False), 1, -1)
    counts = counts if counts.min(initial=1) < counts.max(initial=1) else counts.flat[0]
    return total / np.asarray(counts, x.dtype)


@operator("ArgMax", "ArgMin", domain=DOMAIN)
def place(x: Array, *, axis: int, node: Call) -> Array:
    """The place of an extreme in 32 bits, as no operator of ONNX has it."""
    function = lax.argmax if node.node.op == "ArgMax" else lax.argmin
    return function(x, axis % x.ndim, np.int32)
