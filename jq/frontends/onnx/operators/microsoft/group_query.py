"""Rotary positions and attention with a cache, of ONNX Runtime (`com.microsoft`)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.operators.microsoft.attention import heads, merged
from jq.frontends.onnx.operators.normalization import of_rms
from jq.frontends.onnx.operators.products import matmul
from jq.frontends.onnx.registry import MICROSOFT, Array, Call, Known, operator


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    x: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    is_packed_batching: int = 0,
    scale: float = 1.0,
    node: Call,
) -> Array:
    """`x` is [batch, length, width] or [batch, heads, length, size]. Positions are [batch, length],
    or one number, that of the first element."""
    if is_packed_batching:
        raise node.refuse("packed batches are not supported")
    width = x.shape[-1] if x.ndim == 3 else x.shape[1] * x.shape[-1]
    count = num_heads or (x.shape[1] if x.ndim == 4 else width // (2 * cos_cache.shape[1]))
    split = heads(x, count)
    ids = position_ids
    if ids.ndim < 2:
        ids = ids.reshape(1, 1) + np.arange(split.shape[2], dtype=ids.dtype)
        _require_rows(split.shape[2], cos_cache, node)
    y = rotated(split, ids, cos_cache, sin_cache, bool(interleaved), node)
    return y if x.ndim == 4 else merged(y)


def _require_rows(count: int, table: Any, node: Call) -> None:
    if count > len(table):
        shape = list(table.shape)
        raise node.refuse(f"its tables have shape {shape}, a row for each of {count} positions")


def rotated(x: Any, ids: Any, cos: Any, sin: Any, interleaved: bool, node: Call) -> Any:
    """[batch, heads, length, size] turned by the angles of its positions [batch, length]; what is
    after twice the width of the tables stays. A position that is known only when the program runs
    takes the nearest row that there is."""
    if isinstance(ids, np.ndarray) and ids.size and not 0 <= ids.min() <= ids.max() < len(cos):
        said = f"its positions are {ids.min()} to {ids.max()}"
        raise node.refuse(f"{said}, and its tables have shape {list(cos.shape)}")
    cos, sin = (jnp.take(table, ids, axis=0, mode="clip")[:, None] for table in (cos, sin))
    half = cos.shape[-1]
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
    else:
        a, b = turned[..., :half], turned[..., half:]
    pair = a * cos - b * sin, b * cos + a * sin
    new = jnp.stack(pair, -1).reshape(turned.shape) if interleaved else jnp.concatenate(pair, -1)
    return jnp.concatenate([new, rest], -1) if rest.shape[-1] else new


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    query: Array,
    key: Array = None,
    value: Array = None,
    past_key: Array = None,
    past_value: Array = None,
    seqlens_k: Array = None,
    total_sequence_length: Known = None,
    cos_cache: Array = None,
    sin_cache: Array = None,
    position_ids: Array = None,
    attention_bias: Array = None,
    head_sink: Array = None,
    k_scale: Array = None,
    v_scale: Array = None,
    q_norm_weight: Array = None,
    k_norm_weight: Array = None,
    query_seqlens: Array = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    softcap: float = 0.0,
    local_window_size: int = -1,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    smooth_softmax: int = 0,
    causal: int = 1,
    sliding_window_cache: int = 0,
    qk_output: int = 0,
    qk_norm_epsilon: float = 1e-6,
    q_norm_epsilon: float | None = None,
    k_norm_epsilon: float | None = None,
    node: Call,
) -> Any:
    """Each batch entry has `seqlens_k + 1` keys when the new ones are in; without any before, the
    new ones begin at 0, and what is after the length is padding. The present state is as long as
    the past one, or as all keys when that is more."""
    if any(v is not None for v in (k_scale, v_scale, query_seqlens)) or sliding_window_cache:
        raise node.refuse("quantized caches, window caches and query_seqlens are not supported")
    if qk_output or node.asks_for(3):
        raise node.refuse("its scores as an output are not supported")
    if key is None:
        size = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        ends = [num_heads * size, (num_heads + kv_num_heads) * size]
        query, key, value = jnp.split(query, ends, -1)
    q, k, v = (
        heads(x, n) for x, n in ((query, num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    if q_norm_weight is not None:
        q = of_rms(q, (-1,), q_norm_epsilon or qk_norm_epsilon)[0] * q_norm_weight
        k = of_rms(k, (-1,), k_norm_epsilon or qk_norm_epsilon)[0] * k_norm_weight
    total, length = int(total_sequence_length.reshape(-1)[0]), q.shape[2]
    # Keys before the new ones, [batch].
    before = seqlens_k.reshape(-1) + 1 - length
    if total == length:
        before = 0 * before
    places = before[:, None] + np.arange(length, dtype=np.int32)
    if do_rotary:
        ids = places if position_ids is None else position_ids
        _require_rows(total, cos_cache, node)
        tables = cos_cache, sin_cache, bool(rotary_interleaved), node
        q, k = (rotated(x, ids, *tables) for x in (q, k))
    present = [_extended(p, x, before, total) for p, x in ((past_key, k), (past_value, v))]
    keys, values = (x[:, :, :total] for x in present)
    seen = _seen(places, total, local_window_size) if causal else _there(seqlens_k, total)
    out = _grouped(
        q, keys, values, seen, scale, softcap, attention_bias, _sink(head_sink, smooth_softmax)
    )
    return merged(out), *present


def _extended(past: Any, new: Any, before: Any, total: int) -> Any:
    """The cache with the new elements of each batch entry after those that it has."""
    if past is None:
        past = jnp.zeros((*new.shape[:2], 0, new.shape[3]), new.dtype)
    behind = max(0, total - past.shape[2])
    buffer = jnp.pad(past, ((0, 0), (0, 0), (0, behind), (0, 0)))
    if new.shape[2] == buffer.shape[2]:
        return new
    rows = [
        lax.dynamic_update_slice_in_dim(buffer[i], new[i], before[i], axis=1)
        for i in range(new.shape[0])
    ]
    return jnp.stack(rows)


def _seen(places: Any, total: int, window: int) -> Any:
    """[batch, 1, queries, keys]: a key that is not after its query, nor out of the window."""
    key = np.arange(total, dtype=np.int32)
    seen: Any = key <= places[..., None]
    if window > 0:
        seen &= key > places[..., None] - window
    return seen[:, None]


def _there(last: Any, total: int) -> Any:
    key = np.arange(total, dtype=np.int32)
    return (key <= jnp.asarray(last).reshape(-1, 1))[:, None, None]


def _sink(sink: Any, smooth: int) -> Any:
    """The scores added to the row of each head, of shape [heads] or []; None without."""
    if sink is not None:
        return sink
    return np.zeros((), np.float32) if smooth else None


def _grouped(
    q: Any, k: Any, v: Any, seen: Any, scale: float, softcap: float, bias: Any, sink: Any
) -> Any:
    """Heads of queries in groups, each of which has one head of keys and values."""
    groups = q.shape[1] // k.shape[1]
    k, v = (jnp.repeat(x, groups, axis=1) for x in (k, v))
    scores: Any = matmul(q, jnp.swapaxes(k, -1, -2))
    scores = scores * np.asarray(scale or 1 / math.sqrt(q.shape[-1]), q.dtype)
    if softcap:
        cap = np.asarray(softcap, q.dtype)
        scores = cap * jnp.tanh(scores / cap)
    scores = scores if bias is None else scores + bias
    scores = jnp.where(seen, scores, np.asarray(np.finfo(np.float32).min, q.dtype))
    if sink is None:
        return matmul(jax.nn.softmax(scores, axis=-1), v)
    extra = jnp.broadcast_to(jnp.reshape(sink, (-1, 1, 1)).astype(q.dtype), (*scores.shape[:3], 1))
    weights = jax.nn.softmax(jnp.concatenate([scores, extra], -1), axis=-1)[..., :-1]
    return matmul(weights, v)
