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
from jq.frontends.onnx.quantized import unit
from jq.frontends.onnx.registry import MICROSOFT, Array, Call, operator, operators
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


@operator("Gemm")
def gemm(
    a: Array, b: Array, c: Array = None, *, alpha: float, beta: float, transA: int, transB: int
) -> Array:
    y = matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        y = y * np.asarray(alpha, y.dtype)
    if c is None:
        return y
    return y + (c if beta == 1 else c * np.asarray(beta, y.dtype))


@operator("Einsum")
def einsum(*xs: Array, equation: str) -> Array:
    kind = np.dtype(xs[0].dtype)
    return jnp.einsum(equation.replace(" ", ""), *xs, preferred_element_type=kind)


operators({"Det": lambda x: jnp.linalg.det(x)})
operators({"Inverse": lambda x: jnp.linalg.inv(x)}, domain=MICROSOFT)


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Array,
    b: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:
    a, b = _turned(a, transA, transBatchA), _turned(b, transB, transBatchB)
    y = matmul(a, b)
    return y if alpha == 1 else y * np.asarray(alpha, y.dtype)


def _turned(x: Any, transpose: int, batch: int) -> Any:
    """`batch` moves the first axis in front of the last one before anything else."""
    if batch:
        x = jnp.moveaxis(x, 0, -2)
    return jnp.swapaxes(x, -1, -2) if transpose else x


# Products of integers whose result has 32 bits: MatMulInteger and ConvInteger.
#
# They are products of signed codes and corrections for the zero points:
#
#     sum (a - za) (b - zb) = sum a b - za sum b - zb sum (a - za)
#
# Where only floats read the result, it is the product of numbers with scales of 1 instead, which
# becomes an integer contraction with whatever scales follow.
@operator("MatMulInteger", codes=True)
def matmul_integer(
    a: Array, b: Array, a_zero_point: Array = None, b_zero_point: Array = None, *, node: Call
) -> Any:
    """Zero points are numbers, or one a row of `a` and one a column of `b`."""
    name = node.node.where

    def integers() -> Any:
        left, right = jnp.asarray(to_signed(a)), jnp.asarray(to_signed(b))
        rows, columns = _zero(a, a_zero_point, -2), _zero(b, b_zero_point, -1)
        y = jnp.matmul(left, right, preferred_element_type=np.int32)
        y = y - rows * jnp.sum(right, -2, dtype=np.int32, keepdims=True)
        sums = jnp.sum(left, -1, dtype=np.int32, keepdims=True)
        return y - (sums - np.int32(a.shape[-1]) * rows) * columns

    def floats() -> Any:
        left = unit(a, a_zero_point, axis=len(a.shape) - 2, name=name)
        return matmul(left, unit(b, b_zero_point, axis=len(b.shape) - 1, name=name))

    if min(len(a.shape), len(b.shape)) < 2:
        pair = ((a, a_zero_point), (b, b_zero_point))
        wide = [jnp.asarray(to_signed(x)).astype(np.int32) - _zero(x, z, 0) for x, z in pair]
        return jnp.matmul(*wide)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return Sums(integers, floats, (*batch, a.shape[-2], b.shape[-1]))


def _zero(x: Any, zero: Any, axis: int) -> Any:
    """The zero point of `x`'s signed codes, int32, one for all or one an index of `axis`."""
    if zero is None:
        return np.int32(-offset_of(np.dtype(x.dtype)))
    point = to_signed(zero if known(zero) is None else known(zero)).astype(np.int32)
    if point.size == 1:
        return point.reshape(())
    rank = len(x.shape)
    return (
        point
        if point.ndim > 1
        else point.reshape([-1 if i == axis % rank else 1 for i in range(rank)])
    )


@operator("ConvInteger", codes=True)
def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array = None,
    w_zero_point: Array = None,
    *,
    window: Windowing,
    group: int = 1,
    node: Call,
) -> Any:
    name = node.node.where

    def floats() -> Any:
        left = unit(x, x_zero_point, name=name)
        return convolve(left, unit(w, w_zero_point, axis=0, name=name), window, group)

    def integers() -> Any:
        return _convolved(x, w, _zero(x, x_zero_point, 1), _zero(w, w_zero_point, 0), window, group)

    return Sums(integers, floats, _shape(x, w, window, group))


def _convolved(x: Any, w: Any, zero: Any, w_zero: Any, window: Windowing, group: int) -> Any:
    """Sums of (x - zero) * (w - w_zero) in int32, from products of signed codes.

    The padding is `zero`, so that it counts as nothing.
    """
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
    windows = (
        convolve(left, ones, within, group, np.int32) - np.int32(math.prod(right.shape[1:])) * zero
    )
    spread = jnp.repeat(windows, w.shape[0] // group, axis=1)
    return y - spread * w_zero.reshape(columns if w_zero.size > 1 else ())


def _shape(x: Any, w: Any, window: Windowing, group: int) -> tuple[int, ...]:
    spec = [jax.ShapeDtypeStruct(v.shape, np.float32) for v in (x, w)]
    return tuple(jax.eval_shape(lambda a, b: convolve(a, b, window, group), *spec).shape)
