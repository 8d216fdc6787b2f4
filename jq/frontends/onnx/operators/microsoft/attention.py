"""Attention of ONNX Runtime (`com.microsoft`): `Attention` and `MultiHeadAttention`.

    scores = q @ k^T * scale + bias + mask        [batch, heads, queries, keys]
    output = softmax(scores) @ v

A mask is added, `mask_filter_value` where a key is not to be seen."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators.products import matmul
from jq.frontends.onnx.registry import Given, microsoft

MASK = "[B / 2*B / B T / B S T]?"  # how many keys, where they end and begin, which, which of each
ADDED = "attention_bias[1|B 1|num_heads S T]?"
HOW = "num_heads unidirectional=0 mask_filter_value=-10000.0 scale=0.0"
SHARED = "do_rotary=0 past_present_share_buffer=0"
ATTENTION = (
    f"x[B S I] weights[I total] bias[total]? mask_index{MASK} past[2 B num_heads P size]? {ADDED}"
    f" past_sequence_length?; {HOW} {SHARED} qkv_hidden_sizes?"
)
HEADS = (
    "query[B S W / B S num_heads 3 H] key[B L W / B L num_heads 2 H]? value[B L V]? bias?"
    f" key_padding_mask{MASK} {ADDED} past_key[B num_heads P D]? past_value[B num_heads P E]?"
    f" past_sequence_length? cache_indirection?; {HOW}"
)


@microsoft("Attention", takes=ATTENTION)
def attention(o: Given) -> Any:
    """`weights` are those of queries, keys and values side by side; `past` holds keys and values,
    [2, batch, heads, length, size of a head]."""
    y = matmul(o.x, o.weights)
    return attended(o, y if o.bias is None else y + o.bias, o.qkv_hidden_sizes)


def attended(o: Given, y: Any, sizes: Sequence[int] | None = None) -> Any:
    """Computes `Attention` from queries, keys and values side by side; and the present state."""
    if o.do_rotary or o.past_present_share_buffer:
        raise o.node.refuse("do_rotary and a shared buffer of past and present are not supported")
    parts = jnp.split(y, np.cumsum(sizes or [y.shape[-1] // 3] * 3)[:2], -1)
    q, k, v = (heads(part, o.num_heads) for part in parts)
    if o.past is not None:
        k, v = jnp.concatenate([o.past[0], k], 2), jnp.concatenate([o.past[1], v], 2)
    out, _ = attend(o, q, k, v, o.mask_index)
    if not o.node.asks_for(1):
        return merged(out)
    if k.shape != v.shape:
        raise o.node.refuse("keys and values of different sizes have no common present state")
    return merged(out), jnp.stack([k, v])


@microsoft("MultiHeadAttention", takes=HEADS)
def multi_head_attention(o: Given) -> Any:
    """Queries, keys and values are [batch, length, width], or packed [batch, length, heads, 2 or 3,
    size of a head]; keys and values of four axes are taken as heads that lie ready."""
    if o.past_sequence_length is not None or o.cache_indirection is not None:
        raise o.node.refuse("a buffer that past and present share is not supported")
    parts = [o.query, o.key, o.value]
    if o.query.ndim == 5:
        parts = [_flat(o.query[:, :, :, i]) for i in range(3)]
    elif o.key is None:
        raise o.node.refuse("its input 'key' is missing")
    elif o.key.ndim == 5:
        parts = [o.query, _flat(o.key[:, :, :, 0]), _flat(o.key[:, :, :, 1])]
    if o.bias is not None:
        widths = [x.shape[1] * x.shape[3] if x.ndim == 4 else x.shape[2] for x in parts]
        added = jnp.split(o.bias, np.cumsum(widths)[:2])
        parts = [p + b if p.ndim == 3 else p for p, b in zip(parts, added, strict=True)]
    q, k, v = (heads(part, o.num_heads) for part in parts)
    if o.past_key is not None:
        k, v = jnp.concatenate([o.past_key, k], 2), jnp.concatenate([o.past_value, v], 2)
    out, scores = attend(o, q, k, v, o.key_padding_mask)
    return merged(out), k, v, scores


def heads(x: Any, count: int) -> Any:
    """[batch, length, width] as [batch, heads, length, size]; four axes are that already."""
    return x if x.ndim == 4 else jnp.swapaxes(x.reshape(*x.shape[:2], count, -1), 1, 2)


def merged(x: Any) -> Any:
    return jnp.swapaxes(x, 1, 2).reshape(x.shape[0], x.shape[2], -1)


def attend(o: Given, q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Any]:
    """Values weighted by the softmax of the scores, and the scores."""
    factor = np.asarray(o.scale or 1 / math.sqrt(q.shape[-1]), q.dtype)
    hidden = hidden_keys(o, mask, q, k)
    if o.unidirectional:
        hidden = _added(hidden, later_keys(q, k))
    scores = matmul(q, jnp.swapaxes(k, -1, -2)) * factor
    scores = _added(scores, _added(o.attention_bias, hidden))
    return matmul(jax.nn.softmax(scores, axis=-1), v), scores


def later_keys(q: Any, k: Any) -> np.ndarray:
    """The least number where a key comes after its query; the last query sees all keys."""
    rows, columns = q.shape[2], k.shape[2]
    seen = np.arange(columns) <= np.arange(rows)[:, None] + columns - rows
    return np.where(seen, np.asarray(0, q.dtype), np.asarray(np.finfo(np.float32).min, q.dtype))


def hidden_keys(o: Given, mask: Any, q: Any, k: Any) -> Any:
    """A mask in one of ONNX Runtime's forms as an addend of the scores; None without one.

    [batch, keys] and [batch, queries, keys]: 0 hides. [batch]: how many keys are seen. [2 * batch]:
    where they end, then where they begin."""
    if mask is None:
        return None
    batch, keys = q.shape[0], k.shape[2]
    mask = jnp.asarray(mask)
    if mask.ndim > 3:
        raise o.node.refuse(f"a mask of shape {list(mask.shape)} is not supported")
    seen = mask > 0
    if mask.ndim == 1:
        place = np.arange(keys, dtype=mask.dtype)
        seen = place < mask[:batch, None]
        if mask.shape[0] > batch:
            seen &= place >= mask[batch:, None]
    spread = seen[:, None, None] if seen.ndim == 2 else seen[:, None]
    return jnp.where(spread, jnp.zeros((), q.dtype), np.asarray(o.mask_filter_value, q.dtype))


def _added(a: Any, b: Any) -> Any:
    return a if b is None else b if a is None else a + b


def _flat(x: Any) -> Any:
    return x.reshape(*x.shape[:2], -1)
