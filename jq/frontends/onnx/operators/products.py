"""Matrix products."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.operators.convolutions import convolve
from jq.frontends.onnx.operators.windows import Windowing
from jq.frontends.onnx.quantized import units
from jq.frontends.onnx.registry import Array, Given, microsoft, operator, operators
from jq.frontends.onnx.values import Sums, known, offset_of, to_signed


@operator("MatMul")
def matmul(a: Array, b: Array) -> Array:
    """Batch axes that both have stay as they are, those of size 1 too, which `jnp.matmul` takes out
    of the product: an attention is found by the axes of its scores."""
    kind, rank = np.dtype(a.dtype), len(a.shape)
    if rank < 3 or a.shape[:-2] != b.shape[:-2]:
        return jnp.matmul(a, b, preferred_element_type=kind)
    batch = tuple(range(rank - 2))
    dims = ((rank - 1,), (rank - 2,)), (batch, batch)
    return lax.dot_general(a, b, dims, preferred_element_type=kind)


@operator("Gemm", takes="a b c[/ 1|N / 1|M 1|N]?; alpha beta transA transB")
def gemm(o: Given) -> Array:
    y = matmul(o.a.T if o.transA else o.a, o.b.T if o.transB else o.b)
    if o.alpha != 1:
        y = y * np.asarray(o.alpha, y.dtype)
    return y if o.c is None else y + (o.c if o.beta == 1 else o.c * np.asarray(o.beta, y.dtype))


@operator("Einsum")
def einsum(*xs: Array, equation: str) -> Array:
    return jnp.einsum(equation.replace(" ", ""), *xs, preferred_element_type=np.dtype(xs[0].dtype))


operators({"Det": lambda x: jnp.linalg.det(x)})
microsoft("Inverse")(lambda x: jnp.linalg.inv(x))


FUSED = "a b; alpha=1.0 transA=0 transB=0 transBatchA=0 transBatchB=0"


@microsoft("FusedMatMul", "TransposeMatMul", takes=FUSED)
def fused_matmul(o: Given) -> Array:
    y = matmul(_turned(o.a, o.transA, o.transBatchA), _turned(o.b, o.transB, o.transBatchB))
    return y if o.alpha == 1 else y * np.asarray(o.alpha, y.dtype)


def _turned(x: Any, transpose: int, batch: int) -> Any:
    """`batch` moves the first axis in front of the last one before anything else."""
    if batch:
        x = jnp.moveaxis(x, 0, -2)
    return jnp.swapaxes(x, -1, -2) if transpose else x


# Products of integers whose result has 32 bits: MatMulInteger and ConvInteger.
# They are products of signed codes and corrections for the zero points:
#
#     sum (a - za) (b - zb) = sum a b - za sum b - zb sum (a - za)
#
# Where only floats read the result, it is the product of numbers with scales of 1 instead, which
# becomes an integer contraction with whatever scales follow.
@operator("MatMulInteger", codes=True, takes="a[... K] b[... K N / K] a_zero_point? b_zero_point?")
def matmul_integer(o: Given) -> Any:
    """Zero points are numbers, or one a row of `a` and one a column of `b`."""
    a, b = o.a, o.b

    def integers() -> Any:
        left, right = jnp.asarray(to_signed(a)), jnp.asarray(to_signed(b))
        rows, columns = _zero(a, o.a_zero_point, -2), _zero(b, o.b_zero_point, -1)
        y = jnp.matmul(left, right, preferred_element_type=np.int32)
        y = y - rows * jnp.sum(right, -2, dtype=np.int32, keepdims=True)
        sums = jnp.sum(left, -1, dtype=np.int32, keepdims=True)
        return y - (sums - np.int32(a.shape[-1]) * rows) * columns

    if min(len(a.shape), len(b.shape)) < 2:
        pair = ((a, o.a_zero_point), (b, o.b_zero_point))
        wide = [jnp.asarray(to_signed(x)).astype(np.int32) - _zero(x, z, 0) for x, z in pair]
        return jnp.matmul(*wide)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    return Sums(integers, lambda: matmul(units(o, "a", -2), units(o, "b", -1)), shape)


def _zero(x: Any, zero: Any, axis: int) -> Any:
    """The zero point of `x`'s signed codes, int32, one for all or one an index of `axis`."""
    if zero is None:
        return np.int32(-offset_of(np.dtype(x.dtype)))
    point = to_signed(zero if known(zero) is None else known(zero)).astype(np.int32)
    if point.size == 1:
        return point.reshape(())
    rank = len(x.shape)
    one = [-1 if i == axis % rank else 1 for i in range(rank)]
    return point if point.ndim > 1 else point.reshape(one)


CONVOLVED = "x[N C L ...] w x_zero_point[]? w_zero_point[/ M]?; group=1"


@operator("ConvInteger", codes=True, takes=CONVOLVED)
def conv_integer(o: Given) -> Any:
    window = Windowing.of(o.node)

    def convolved(x: Any, w: Any) -> Any:
        return convolve(x, w, window, o.group)

    def integers() -> Any:
        zeros = _zero(o.x, o.x_zero_point, 1), _zero(o.w, o.w_zero_point, 0)
        return _convolved(o.x, o.w, *zeros, window, o.group)

    shapes = [jax.ShapeDtypeStruct(v.shape, np.float32) for v in (o.x, o.w)]
    return Sums(
        integers,
        lambda: convolved(units(o, "x"), units(o, "w", 0)),
        tuple(jax.eval_shape(convolved, *shapes).shape),
    )


def _convolved(x: Any, w: Any, zero: Any, w_zero: Any, window: Windowing, group: int) -> Any:
    """Sums of (x - zero) * (w - w_zero) in int32, from products of signed codes.

    The padding is `zero`, so that it counts as nothing."""
    rank = len(x.shape) - 2
    pairs = window.padding(x.shape[2:], w.shape[2:])
    left, right = jnp.asarray(to_signed(x)), jnp.asarray(to_signed(w))
    edge = jnp.asarray(zero).astype(left.dtype)
    left = lax.pad(left, edge, [(0, 0, 0)] * 2 + [(low, high, 0) for low, high in pairs])
    within = replace(window, auto_pad="VALID", pads=None)
    y = convolve(left, right, within, group, np.int32)
    columns = (1, -1, *[1] * rank)
    sums = jnp.sum(right, tuple(range(1, rank + 2)), dtype=np.int32).reshape(columns)
    y = y - zero * sums
    if isinstance(w_zero, np.ndarray | np.generic) and not np.any(w_zero):
        return y
    ones = jnp.ones((group, *right.shape[1:]), right.dtype)
    windows = convolve(left, ones, within, group, np.int32)
    windows = windows - np.int32(math.prod(right.shape[1:])) * zero
    spread = jnp.repeat(windows, w.shape[0] // group, axis=1)
    return y - spread * w_zero.reshape(columns if w_zero.size > 1 else ())
