"""Attention of ONNX Runtime (`com.microsoft`): `Attention` and `MultiHeadAttention`.

    scores = q @ k^T * scale + bias + mask        [batch, heads, queries, keys]
    output = softmax(scores) @ v

A mask is added, `mask_filter_value` where a key is not to be seen.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators.products import matmul
from jq.frontends.onnx.registry import MICROSOFT, Array, Call, operator

_FILTER = -10000.0


@operator("Attention", domain=MICROSOFT)
def attention(
    x: Array,
    weights: Array,
    bias: Array = None,
    mask_index: Array = None,
    past: Array = None,
    attention_bias: Array = None,
    past_sequence_length: Array = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: Any = None,
    unidirectional: int = 0,
    mask_filter_value: float = _FILTER,
    scale: float = 0.0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
    node: Call,
) -> Any:
    """`weights` are those of queries, keys and values side by side; `past` holds keys and values,
    [2, batch, heads, length, size of a head]."""
    if do_rotary or past_present_share_buffer:
        raise node.refuse("do_rotary and a shared buffer of past and present are not supported")
    y = matmul(x, weights)
    y = y if bias is None else y + bias
    sizes = qkv_hidden_sizes or [y.shape[-1] // 3] * 3
    parts = [heads(part, num_heads) for part in jnp.split(y, np.cumsum(sizes)[:2], -1)]
    return attended(
        parts, mask_index, past, attention_bias, unidirectional, mask_filter_value, scale, node
    )


def attended(
    qkv: Sequence[Any],
    mask_index: Any,
    past: Any,
    attention_bias: Any,
    unidirectional: int,
    mask_filter_value: float,
    scale: float,
    node: Call,
) -> Any:
    """Computes `Attention` from heads of queries, keys and values; and the present state."""
    q, k, v = qkv
    if past is not None:
        k, v = jnp.concatenate([past[0], k], 2), jnp.concatenate([past[1], v], 2)
    mask = hidden_keys(mask_index, q, k, mask_filter_value, node)
    if unidirectional:
        mask = _added(mask, later_keys(q, k))
    out, _ = attend(q, k, v, scale, _added(attention_bias, mask))
    if not node.asks_for(1):
        return merged(out)
    if k.shape != v.shape:
        raise node.refuse("keys and values of different sizes have no common present state")
    return merged(out), jnp.stack([k, v])


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    query: Array,
    key: Array = None,
    value: Array = None,
    bias: Array = None,
    key_padding_mask: Array = None,
    attention_bias: Array = None,
    past_key: Array = None,
    past_value: Array = None,
    past_sequence_length: Array = None,
    cache_indirection: Array = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    mask_filter_value: float = _FILTER,
    scale: float = 0.0,
    node: Call,
) -> Any:
    """Queries, keys and values are [batch, length, width], or packed [batch, length, heads, 2 or 3,
    size of a head]; keys and values of four axes are taken as heads that lie ready."""
    if past_sequence_length is not None or cache_indirection is not None:
        raise node.refuse("a buffer that past and present share is not supported")
    if query.ndim == 5:
        query, key, value = (_flat(query[:, :, :, i]) for i in range(3))
    elif key is not None and key.ndim == 5:
        key, value = _flat(key[:, :, :, 0]), _flat(key[:, :, :, 1])
    elif key is None:
        raise node.refuse("its input 'key' is missing")
    parts = [query, key, value]
    if bias is not None:
        widths = [_width(part) for part in parts]
        added = jnp.split(bias, np.cumsum(widths)[:2])
        parts = [p + b if p.ndim == 3 else p for p, b in zip(parts, added, strict=True)]
    q, k, v = (heads(part, num_heads) for part in parts)
    if past_key is not None:
        k, v = jnp.concatenate([past_key, k], 2), jnp.concatenate([past_value, v], 2)
    mask = hidden_keys(key_padding_mask, q, k, mask_filter_value, node)
    if unidirectional:
        mask = _added(mask, later_keys(q, k))
    out, scores = attend(q, k, v, scale, _added(attention_bias, mask))
    return merged(out), k, v, scores


def heads(x: Any, count: int) -> Any:
    """[batch, length, width] as [batch, heads, length, size]; four axes are that already."""
    if x.ndim == 4:
        return x
    return jnp.swapaxes(x.reshape(*x.shape[:2], count, -1), 1, 2)


def merged(x: Any) -> Any:
    return jnp.swapaxes(x, 1, 2).reshape(x.shape[0], x.shape[2], -1)


def attend(q: Any, k: Any, v: Any, scale: float, bias: Any) -> tuple[Any, Any]:
    """Values weighted by the softmax of the scores, and the scores."""
    factor = np.asarray(scale or 1 / math.sqrt(q.shape[-1]), q.dtype)
    scores = matmul(q, jnp.swapaxes(k, -1, -2)) * factor
    scores = scores if bias is None else scores + bias
    return matmul(jax.nn.softmax(scores, axis=-1), v), scores


def later_keys(q: Any, k: Any) -> np.ndarray:
    """The least number where a key comes after its query; the last query sees all keys."""
    rows, columns = q.shape[2], k.shape[2]
    seen = np.arange(columns) <= np.arange(rows)[:, None] + columns - rows
    return np.where(seen, np.asarray(0, q.dtype), np.asarray(np.finfo(np.float32).min, q.dtype))


def hidden_keys(mask: Any, q: Any, k: Any, value: float, node: Call) -> Any:
    """A mask in one of ONNX Runtime's forms as an addend of the scores; None without one.

    [batch, keys] and [batch, queries, keys]: 0 hides. [batch]: how many keys are seen. [2 * batch]:
    where they end, then where they begin.
    """
    if mask is None:
        return None
    batch, keys = q.shape[0], k.shape[2]
    mask = jnp.asarray(mask)
    if mask.ndim == 1 and mask.shape[0] in (batch, 2 * batch):
        place = np.arange(keys, dtype=mask.dtype)
        seen = place < mask[:batch, None]
        if mask.shape[0] > batch:
            seen &= place >= mask[batch:, None]
    elif mask.ndim in (2, 3):
        seen = mask > 0
    else:
        raise node.refuse(f"a mask of shape {list(mask.shape)} is not supported")
    spread = seen[:, None, None] if seen.ndim == 2 else seen[:, None]
    return jnp.where(spread, jnp.zeros((), q.dtype), np.asarray(value, q.dtype))


def _added(a: Any, b: Any) -> Any:
    return a if b is None else b if a is None else a + b


def _flat(x: Any) -> Any:
    return x.reshape(*x.shape[:2], -1)


def _width(x: Any) -> int:
    return int(x.shape[1] * x.shape[3] if x.ndim == 4 else x.shape[2])
