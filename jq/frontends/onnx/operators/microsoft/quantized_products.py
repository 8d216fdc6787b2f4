"""Matrix products of ONNX Runtime (`com.microsoft`) whose operands are codes, or become codes."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators._recurrence import Cells
from jq.frontends.onnx.operators.microsoft.attention import attended, heads
from jq.frontends.onnx.operators.microsoft.fused import embed_layer_normalization
from jq.frontends.onnx.operators.products import matmul
from jq.frontends.onnx.operators.quantize import dynamic, product_ratio, requantized
from jq.frontends.onnx.operators.recurrent import lstm
from jq.frontends.onnx.quantized import dequantize, unit
from jq.frontends.onnx.registry import MICROSOFT, Array, Call, operator
from jq.frontends.onnx.values import Codes, as_jax, best_known, offset_of, plain, to_signed


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
    left = dequantize(*dynamic(as_jax(a), where), name=where)
    right = dequantize(b, b_scale, b_zero, axis=len(b.shape) - 1, name=where)
    y = matmul(left, right)
    return y if bias is None else y + plain(bias)


# Quantized operators of ONNX Runtime with several products: LSTM, attention, embeddings.
@operator("DynamicQuantizeLSTM", domain=MICROSOFT, codes=True)
def dynamic_quantize_lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array = None,
    sequence_lens: Array = None,
    initial_h: Array = None,
    initial_c: Array = None,
    p: Array = None,
    w_scale: Array = None,
    w_zero: Array = None,
    r_scale: Array = None,
    r_zero: Array = None,
    *,
    cells: Cells,
    input_forget: int = 0,
    node: Call,
) -> Any:
    """Weights are [directions, inputs, gates]. The whole input is quantized with one range, and
    the states of each step with one, as ONNX Runtime does on one thread: several divide the
    samples among them, and quantize each part with a range of its own."""
    rest = [None if v is None else plain(v) for v in (b, sequence_lens, initial_h, initial_c, p)]
    data = as_jax(x)
    if sequence_lens is not None:  # what no sample reaches has no part in the range
        reached = jnp.arange(data.shape[0]) < jnp.asarray(rest[1]).max()
        data = jnp.where(reached[:, None, None], data, jnp.zeros_like(data))
    return lstm(
        data,
        _by(w, w_scale, w_zero, node),
        _by(r, r_scale, r_zero, node),
        *rest,
        cells=cells,
        input_forget=input_forget,
    )


def _by(weights: Any, scale: Any, zero: Any, node: Call) -> Any:
    """The product of a float tensor, quantized as it comes, with the weights of a direction."""
    where, kind = node.node.where, np.dtype(weights.dtype)
    step_of, zero_of = best_known(scale), None if zero is None else to_signed(best_known(zero))

    def product(x: Any, d: int) -> Any:
        left = dequantize(*dynamic(x, where), name=where)
        right = Codes(jnp.asarray(to_signed(weights))[d], kind)
        offset = None if zero_of is None else zero_of[d].astype(np.int32) + offset_of(kind)
        return matmul(left, dequantize(right, step_of[d], offset, axis=1, name=where))

    return product


@operator("QAttention", domain=MICROSOFT, codes=True)
def quantized_attention(
    x: Array,
    weights: Array,
    bias: Array,
    x_scale: Array,
    w_scale: Array,
    mask_index: Array = None,
    x_zero: Array = None,
    w_zero: Array = None,
    past: Array = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
    node: Call,
) -> Any:
    """One product of integers gives queries, keys and values; what follows is in float."""
    if do_rotary or past_present_share_buffer:
        raise node.refuse("do_rotary and a shared buffer of past and present are not supported")
    where = node.node.where
    sums = matmul(unit(x, x_zero, name=where), unit(weights, w_zero, axis=1, name=where))
    y = sums * product_ratio(x_scale, w_scale) + plain(bias)
    parts = [heads(part, num_heads) for part in jnp.split(y, 3, -1)]
    mask, before = (None if v is None else plain(v) for v in (mask_index, past))
    return attended(parts, mask, before, None, unidirectional, mask_filter_value, scale, node)


@operator("QEmbedLayerNormalization", domain=MICROSOFT, codes=True)
def quantized_embed_layer_normalization(
    ids: Array,
    segments: Array = None,
    words: Array = None,
    positions: Array = None,
    segment_table: Array = None,
    gamma: Array = None,
    beta: Array = None,
    mask: Array = None,
    *parameters: Array,
    epsilon: float = 1e-12,
    node: Call,
) -> Any:
    """`parameters` are five scales, then five zero points: of each table, gamma and beta."""
    tables = words, positions, segment_table, gamma, beta
    floats = [
        None if t is None else dequantize(t, parameters[i], parameters[i + 5], name=node.node.where)
        for i, t in enumerate(tables)
    ]
    given = [None if v is None else plain(v) for v in (ids, segments)]
    seen = None if mask is None else plain(mask)
    y, count, _ = embed_layer_normalization(*given, *floats, seen, epsilon=epsilon)
    return y, count
