"""Quantized operators of ONNX Runtime (`com.microsoft`): dequantize, compute, quantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.onnx import pairs
from jq.onnx.operators.indexing import from_front
from jq.onnx.operators.products import matmul
from jq.onnx.operators.quantize import dynamic, product_ratio, qlinear_conv, requantized
from jq.onnx.operators.windows import Window, average_in_order
from jq.onnx.pairs import Scaled
from jq.onnx.quantized import (
    dequantize,
    quantize,
    quantize_shifted,
    small_type,
    unit,
    unpacked_fields,
)
from jq.onnx.registry import MICROSOFT, Array, Call, operator
from jq.onnx.values import Codes, Weight, as_jax, bits_of, known, plain, to_signed, traced

UINT8 = np.dtype(np.uint8)


@operator("QLinearConv", domain=MICROSOFT, codes=True)
def qlinear_conv_microsoft(x: Array, *rest: Array, channels_last: int = 0, node: Call) -> Any:
    """That of the standard, also with the channels of `x` and of the result on the last axis."""
    names = ("auto_pad", "dilations", "group", "pads", "strides")
    options = {k: v for k, v in node.attributes.items() if k in names}
    if not channels_last:
        return qlinear_conv(x, *rest, **options, node=node)
    front = Codes(jnp.moveaxis(jnp.asarray(to_signed(x)), -1, 1), np.dtype(x.dtype))
    y = qlinear_conv(front, *rest, **options, node=node)
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
        step = _cut_inverse(_data(y_scale)) if whole else y_scale
        return quantize(y, step, y_zero, _kind(y_zero, x), name=where)


def _cut_inverse(scale: Any) -> Any:
    """The scale whose inverse is the whole number below."""
    one = np.float32(1)
    return one / np.floor(one / scale).astype(np.float32)


def _leaky(x: Any, alpha: float = 0.01) -> Any:
    return jnp.where(x < 0, x * np.float32(alpha), x)


def _softmax(x: Any, axis: int = -1, opset: int = 13) -> Any:
    if opset >= 13:
        return jax.nn.softmax(x, axis=axis)
    rows = int(np.prod(x.shape[: axis % x.ndim], dtype=np.int64))
    return jax.nn.softmax(x.reshape(rows, -1), axis=1).reshape(x.shape)


def _global(x: Any, channels_last: int = 0) -> Any:
    axes = range(1, x.ndim - 1) if channels_last else range(2, x.ndim)
    return jnp.mean(x, tuple(axes), keepdims=True)


_unary("QLinearSigmoid", jax.nn.sigmoid)
_unary("QLinearLeakyRelu", _leaky, "alpha")
_unary("QLinearSoftmax", _softmax, "axis", "opset", whole=True)
_unary("QLinearGlobalAveragePool", _global, "channels_last")


@operator("QLinearAveragePool", domain=MICROSOFT, codes=True)
def qlinear_average_pool(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    y_scale: Array,
    y_zero: Array = None,
    *,
    kernel_shape: list[int],
    strides: Any = None,
    pads: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    channels_last: int = 0,
    node: Call,
) -> Any:
    """As ONNX Runtime does it, which adds the zero point before the average is rounded."""
    where = node.node.where
    front = dequantize(x, x_scale, x_zero, name=where)
    front = jnp.moveaxis(front, -1, 1) if channels_last else front
    window = Window(front.shape, kernel_shape, strides, None, pads, auto_pad, ceil_mode)
    y = average_in_order(front, window, bool(count_include_pad))
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


@operator("QGemm", domain=MICROSOFT, codes=True)
def qgemm(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    c: Array = None,
    y_scale: Array = None,
    y_zero: Array = None,
    *,
    transA: int = 0,
    transB: int = 0,
    alpha: float = 1.0,
    node: Call,
) -> Any:
    """`c` is int32, in steps of both scales together; float without a scale of the result."""
    where = node.node.where
    left = unit(a, a_zero, name=where)
    right = unit(b, b_zero, axis=0 if transB else 1, name=where)
    y = matmul(left.T if transA else left, right.T if transB else right)
    y = y if c is None else y + jnp.asarray(plain(c)).astype(np.float32)
    ratio = product_ratio(a_scale, b_scale, y_scale, alpha)
    if y_scale is None:
        return y * ratio
    none = np.zeros((), a.dtype)
    return requantized(y, ratio, none if y_zero is None else y_zero, where)


def _data(x: Any) -> Any:
    data = known(x)
    return data if data is not None else plain(x)


@operator("MatMulIntegerToFloat", domain=MICROSOFT, codes=True)
def matmul_integer_to_float(
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero: Array = None,
    b_zero: Array = None,
    bias: Array = None,
    *,
    node: Call,
) -> Array:
    where = node.node.where
    left = dequantize(a, a_scale, a_zero, axis=len(a.shape) - 2, name=where)
    right = dequantize(b, b_scale, b_zero, axis=len(b.shape) - 1, name=where)
    y = matmul(left, right)
    return y if bias is None else y + plain(bias)


@operator("DynamicQuantizeMatMul", domain=MICROSOFT, codes=True)
def dynamic_quantize_matmul(
    a: Array, b: Array, b_scale: Array, b_zero: Array = None, bias: Array = None, *, node: Call
) -> Array:
    where = node.node.where
    codes, scale, zero = dynamic(as_jax(a), where)
    left = dequantize(codes, scale, Codes(zero, UINT8), name=where)
    right = dequantize(b, b_scale, b_zero, axis=len(b.shape) - 1, name=where)
    y = matmul(left, right)
    return y if bias is None else y + plain(bias)


@operator("MatMulNBits", domain=MICROSOFT, codes=True)
def matmul_nbits(
    a: Array,
    b: Array,
    scales: Array,
    zero_points: Array = None,
    g_idx: Array = None,
    bias: Array = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
    node: Call,
) -> Array:
    """Weights [N, K] in blocks along K, the low bits of a byte first; products with float.

    `g_idx` is the block of each index of K: columns are put in the order of their blocks.
    """
    x, columns = plain(a), None
    if g_idx is not None:
        columns = _in_blocks(known(g_idx), K, block_size, node)
        x = jnp.take(x, columns, axis=-1)
    weight = _blocked(b, scales, zero_points, (N, K), bits, block_size, node, columns)
    y = matmul(x, weight.T.astype(a.dtype))
    return y if bias is None else y + plain(bias)


def _in_blocks(groups: np.ndarray | None, width: int, block: int, node: Call) -> np.ndarray:
    """Indices of K in the order of their blocks."""
    if groups is None:
        raise node.refuse("g_idx that is computed is not supported")
    counts = np.bincount(groups[:width], minlength=-(-width // block))
    if (counts[:-1] != block).any() or counts[-1] != width - block * (len(counts) - 1):
        hint = "quantize the weight without act-order"
        raise node.refuse(f"g_idx whose groups are no blocks of {block} is not supported", hint)
    return np.argsort(groups[:width], kind="stable")


def _blocked(
    b: Any,
    scales: Any,
    zeros: Any,
    shape: tuple[int, int],
    bits: int,
    block: int,
    node: Call,
    columns: np.ndarray | None = None,
) -> Any:
    """The float matrix whose rows are stored in blocks, unsigned numbers in bytes."""
    if bits not in (2, 4, 8):
        raise node.refuse(f"weights of {bits} bits are not supported")
    rows, width = shape
    blocks = -(-width // block)
    kind = small_type(bits)
    codes = _fields(b, bits).reshape(rows, -1)[:, :width]
    codes = codes if columns is None else jnp.take(codes, columns, axis=1)
    factor = _data(scales).reshape(rows, blocks)
    name = b.name if isinstance(b, Weight) else node.node.where
    half = 1 << (bits - 1)
    if zeros is None:
        zero: Any = np.full((rows, blocks), half, np.int32).astype(kind)
    elif np.dtype(zeros.dtype) == np.uint8:
        zero = Codes(_fields(zeros, bits).reshape(rows, -1)[:, :blocks], kind)
        data = known(zeros)
        if data is not None:
            zero = (unpacked_fields(data, bits).reshape(rows, -1)[:, :blocks]).astype(kind)
    else:
        return _from_float_zeros(codes, factor, _data(zeros).reshape(rows, blocks) - half, block)
    return dequantize(Codes(codes, kind), factor, zero, axis=1, block=block, name=name)


def _from_float_zeros(codes: Any, factor: Any, zeros: Any, block: int) -> Any:
    """Zero points that need not be whole numbers: no format of ours has them."""
    zero, scale = (np.repeat(v, block, axis=1)[:, : codes.shape[1]] for v in (zeros, factor))
    return (codes.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)


def _fields(packed: Any, bits: int) -> Any:
    """Signed codes of numbers packed into bytes."""
    if bits == 8:
        return to_signed(packed)
    value = traced(packed)
    if isinstance(value, Codes) and bits_of(value.dtype) == bits:
        return value.signed  # a parameter of the model, which is held so
    byte = jnp.asarray(plain(packed)).astype(np.int32)
    parts = [(byte >> (bits * i)) & ((1 << bits) - 1) for i in range(8 // bits)]
    fields = jnp.stack(parts, -1) - (1 << (bits - 1))
    return fields.astype(np.int8).reshape(*packed.shape[:-1], -1)


@operator("GatherBlockQuantized", domain=MICROSOFT, codes=True)
def gather_block_quantized(
    data: Array,
    indices: Array,
    scales: Array,
    zero_points: Array = None,
    *,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    block_size: int = 128,
    bits: int = 4,
    node: Call,
) -> Array:
    """Without zero points, bytes are in the middle of their numbers, and numbers of 4 bits at 0."""
    value, zero = traced(data), zero_points
    in_bytes = np.dtype(data.dtype) == np.uint8
    if in_bytes and bits < 8:
        value = Codes(_fields(data, bits), small_type(bits))
        if zero is not None:
            zero = unpacked_fields(_data(zero), bits).astype(small_type(bits))
    axis = quantize_axis % len(value.shape)
    if zero is None and in_bytes:
        zero = np.full(scales.shape, 1 << (bits - 1), np.int32).astype(value.dtype)
    table = dequantize(value, scales, zero, axis=axis, block=block_size, name=node.node.where)
    index = from_front(as_jax(indices), table.shape[gather_axis])
    return jnp.take(table, index, axis=gather_axis, mode="clip").astype(scales.dtype)
