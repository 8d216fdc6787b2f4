"""Kernels in NumPy: what each computes, by its description alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import ml_dtypes
import numpy as np

from jq.kernels import Attention, DecodeDot, Depthwise, Gemv, IntegerAttention, RowRanges, SplitRows
from jq.kernels.attention.heads import Heads
from jq.kernels.convolution.windowed import Windowed
from jq.kernels.gemm.product import MatrixPanels, Product
from tests.kernels.steps import applied

Array = np.ndarray


@singledispatch
def reference(kernel: Any, *operands: Any, **more: Any) -> Any:
    raise NotImplementedError(type(kernel))


def _rounded(kernel: Product, x: Array) -> Array:
    """Floats as they are multiplied; codes as they are."""
    return x.astype(ml_dtypes.bfloat16) if kernel.halves else x


def _finished(
    kernel: Product, acc: Array, bias: Array | None, operands: Sequence[Sequence[Array]]
) -> Array:
    """The result from sums; `operands` holds each step's in broadcastable form."""
    kind = np.float32 if kernel.floats else np.int32
    y = (acc + (0 if bias is None else bias)).astype(kind).reshape(kernel.shape)
    return applied(kernel.epilogue, y, operands)


@reference.register
def _(
    kernel: MatrixPanels,
    codes: Array,
    weight: Array,
    bias: Array | None = None,
    zero: Array | int = 0,
    operands: Sequence[Sequence[Array]] = (),
    column_zero: Array | int = 0,
) -> Array:
    """Signed codes [M, K], weight [K, N], zero points per row or one; floats with sums in
    float64."""
    kind = np.float64 if kernel.floats else np.int64
    q = _rounded(kernel, codes).astype(kind) - np.asarray(zero, kind).reshape(-1, 1)
    return _finished(kernel, q @ (weight.astype(kind) - column_zero), bias, operands)


@reference.register
def _(
    kernel: Windowed,
    codes: Array,
    weight: Array,
    bias: Array | None = None,
    zero_point: int | Array = 0,
    operands: Sequence[Sequence[Array]] = (),
    column_zero: Array | int = 0,
) -> Array:
    """Signed codes [B, H, W, C] and a weight of `weight_shape`."""
    kind = np.float64 if kernel.floats else np.int64
    real = weight.astype(kind) - column_zero
    x = _rounded(kernel, codes).astype(kind) - np.reshape(zero_point, (-1, 1, 1, 1))
    x = np.pad(x, ((0, 0), *kernel.around, (0, 0)))
    acc = np.zeros((kernel.batch, *kernel.output, kernel.weight_shape[-1]), kind)
    for tap in np.ndindex(*kernel.window):
        starts = [i * d for i, d in zip(tap, kernel.dilations, strict=True)]
        rows, columns = (
            slice(start, start + (size - 1) * stride + 1, stride)
            for start, size, stride in zip(starts, kernel.output, kernel.strides, strict=True)
        )
        acc += _products(kernel, x[:, rows, columns], real[tap])
    return _finished(kernel, acc, bias, operands)


def _products(kernel: Windowed, x: Array, weight: Array) -> Array:
    """The products of one tap: [B, Ho, Wo, C] -> [B, Ho, Wo, filters]."""
    if isinstance(kernel, Depthwise):
        return x * weight
    groups = kernel.groups  # type: ignore[attr-defined]
    sides = zip(np.split(x, groups, -1), np.split(weight, groups, -1), strict=True)
    return np.concatenate([a @ b for a, b in sides], -1)


@reference.register
def _(
    kernel: Gemv,
    x: Array,
    row_scale: Array,
    codes: Array,
    scale: Any,
    minimum: Any = None,
    operands: Sequence[Sequence[Array]] = (),
    zero: Array | None = None,
) -> Array:
    """One weight: integer sums, the rest in double precision, rounded once."""
    pad = kernel.blocks * kernel.block - kernel.k
    if kernel.digits > 1:
        x = (x.astype(np.int64) << (8 * np.arange(kernel.digits))[::-1, None]).sum(1)
    lhs = np.pad(x.astype(np.int64), ((0, 0), (0, pad))).reshape(kernel.m, kernel.blocks, -1)
    rhs = np.pad(codes.astype(np.int64), ((0, pad), (0, 0)))
    rhs = rhs.reshape(kernel.blocks, kernel.block, kernel.n)
    acc = np.einsum("mbk,bkn->mbn", lhs, rhs).astype(np.float64) * _numbers(kernel, scale)
    if zero is not None:
        acc = acc - lhs.sum(2)[..., None] * zero * _numbers(kernel, scale)
    if minimum is not None:
        acc = acc + lhs.sum(2)[..., None] * _numbers(kernel, minimum)
    y = (acc * row_scale.reshape(kernel.m, -1, 1)).sum(1).astype(np.float32)
    return applied(kernel.epilogue, y, operands)


def _numbers(kernel: Gemv, scale: Any) -> Array:
    """[blocks, N] as numbers, of such, or of integers and what they are multiplied by."""
    if not isinstance(scale, tuple):
        return scale.astype(np.float64)
    values, factors = scale
    wide = np.repeat(factors.astype(np.float64), kernel.outer, axis=0)[: kernel.blocks]
    return np.asarray(values * wide)


@reference.register
def _(kernel: DecodeDot, x: Array, weight: Array) -> Array:
    """Double precision, with a decoded weight [N, K]."""
    return x.astype(np.float64) @ weight.astype(np.float64).T


@reference.register
def _(kernel: RowRanges, x: Array) -> tuple[Array, Array]:
    return np.min(x, axis=1), np.max(x, axis=1)


@reference.register
def _(kernel: SplitRows, x: Array) -> tuple[Array, Array]:
    """Finite numbers whose scales are no smaller than 2^-126."""
    pad = kernel.blocks * kernel.block - kernel.k
    blocks = np.pad(x, ((0, 0), (0, pad))).reshape(kernel.m, kernel.blocks, kernel.block)
    largest = np.abs(blocks).max(2)
    extent, steps = np.where(largest == 0, 1, largest).astype("f4"), np.float32(kernel.steps)
    inverse = np.where(largest == 0, np.float32(1), steps / extent)
    scale = np.where(largest == 0, np.float32(1), extent / steps)
    q = np.rint(blocks * inverse[..., None]).reshape(kernel.m, -1)[:, : kernel.k].astype(np.int64)
    digits = []
    for _ in range(kernel.digits):
        digits.append((q + 128) % 256 - 128)
        q = (q + 128) >> 8
    return np.stack(digits[::-1], 1).astype(np.int8), scale


def head(kernel: Heads, x: Array, which: int, h: int) -> Array:
    """The columns of q, k or v (`which`) that head h reads."""
    h = h if which == 0 else h // (kernel.heads // kernel.kv_heads)
    start = kernel.starts[which] + h * kernel.dim
    return x[:, :, start : start + kernel.dim]


def softmax(kernel: Heads, scores: Array, mask: Array | None, fill: float | None = None) -> Array:
    """Softmax of a head's scores [B, Sq, Sk]; with `fill` they are that number where the mask is
    not 0. Sums with a mask are rounded to float32, as in a program."""
    if mask is not None:
        mask = mask[:, None, :] if kernel.mask == "keys" else mask
        scores = scores + mask if fill is None else np.where(mask == 0, scores, fill)
        scores = scores.astype(np.float32).astype(np.float64)
    e: Array = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@reference.register
def _(kernel: Attention, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """Double precision, without the epilogue."""
    outs = []
    for h in range(kernel.heads):
        left, right, values = (head(kernel, x, i, h).astype(float) for i, x in enumerate((q, k, v)))
        scores = left @ right.transpose(0, 2, 1) * kernel.scale
        outs.append(softmax(kernel, scores, mask, kernel.fill) @ values)
    return np.concatenate(outs, -1)


def probabilities(
    kernel: IntegerAttention, q: Array, k: Array, zeros: Array, factor: float, mask: Any
) -> Array:
    """Probabilities f64 [heads, B, Sq, Sk]; 0 in rows that have no softmax."""
    found = []
    for h in range(kernel.heads):
        left, right = _integers(kernel, q, 0, h, zeros), _integers(kernel, k, 1, h, zeros)
        scores = (left @ right.transpose(0, 2, 1)).astype(np.float64) * factor
        found.append(np.nan_to_num(softmax(kernel, scores, mask), nan=0.0))
    return np.stack(found)


def context(
    kernel: IntegerAttention,
    codes: Array,
    v: Array,
    zeros: Array,
    operands: Sequence[Sequence[Array]] = (),
) -> Array:
    """The result from the probabilities' codes [heads, B, Sq, Sk]."""
    rows = [
        (codes[h].astype(np.int64) - zeros[3]) @ _integers(kernel, v, 2, h, zeros)
        for h in range(kernel.heads)
    ]
    return applied(kernel.epilogue, np.concatenate(rows, -1).astype(np.int32), operands)


def _integers(kernel: IntegerAttention, x: Array, which: int, h: int, zeros: Array) -> Array:
    return head(kernel, x, which, h).astype(np.int64) - int(zeros[which])
