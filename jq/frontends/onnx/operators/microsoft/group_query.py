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
from jq.frontends.onnx.registry import Array, Call, Given, microsoft

ROTARY = (
    "x[B S W / B N S H] position_ids cos_cache[L half] sin_cache[L half];"
    " interleaved=0 num_heads=0 rotary_embedding_dim=0 is_packed_batching=0 scale=1.0"
)
GROUPED = (
    "query[B S count*size] key[B S kv_num_heads*size]? value[B S kv_num_heads*size]?"
    " past_key[B kv_num_heads P size]? past_value[B kv_num_heads P size]? seqlens_k[B / B 1]"
    " total_sequence_length[]! cos_cache[L R]? sin_cache[L R]? position_ids[B S]?"
    " attention_bias[1|B 1|num_heads S T]? head_sink[num_heads]? k_scale? v_scale?"
    " q_norm_weight[size]? k_norm_weight[size]? query_seqlens?;"
    " num_heads kv_num_heads scale=0.0 softcap=0.0 local_window_size=-1 causal=1 smooth_softmax=0"
    " do_rotary=0 rotary_interleaved=0 sliding_window_cache=0 qk_output=0 qk_norm_epsilon=1e-6"
    " q_norm_epsilon? k_norm_epsilon?"
)


@microsoft("RotaryEmbedding", takes=ROTARY)
def rotary_embedding(o: Given) -> Array:
    """`x` is [batch, length, width] or [batch, heads, length, size]. Positions are [batch, length],
    or one number, that of the first element."""
    if o.is_packed_batching:
        raise o.node.refuse("packed batches are not supported")
    x, ids, rank = o.x, o.position_ids, o.x.ndim
    width = x.shape[-1] if rank == 3 else x.shape[1] * x.shape[-1]
    count = o.num_heads or (x.shape[1] if rank == 4 else width // (2 * o.cos_cache.shape[1]))
    split = heads(x, count)
    if ids.ndim < 2:
        ids = ids.reshape(1, 1) + np.arange(split.shape[2], dtype=ids.dtype)
        _require_rows(split.shape[2], o.cos_cache, o.node)
    y = rotated(split, ids, o.cos_cache, o.sin_cache, bool(o.interleaved), o.node)
    return y if rank == 4 else merged(y)


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


@microsoft("GroupQueryAttention", takes=GROUPED)
def group_query_attention(o: Given) -> Any:
    """Each batch entry has `seqlens_k + 1` keys when the new ones are in; without any before, the
    new ones begin at 0, and what is after the length is padding. The present state is as long as
    the past one, or as all keys when that is more."""
    lacking = (o.k_scale, o.v_scale, o.query_seqlens)
    if any(v is not None for v in lacking) or o.sliding_window_cache:
        raise o.node.refuse("quantized caches, window caches and query_seqlens are not supported")
    if o.qk_output or o.node.asks_for(3):
        raise o.node.refuse("its scores as an output are not supported")
    counts = o.num_heads, o.kv_num_heads, o.kv_num_heads
    parts = [o.query, o.key, o.value]
    if o.key is None:
        size = o.query.shape[-1] // sum(counts)
        parts = jnp.split(o.query, [counts[0] * size, (counts[0] + counts[1]) * size], -1)
    q, k, v = (heads(x, n) for x, n in zip(parts, counts, strict=True))
    if o.q_norm_weight is not None:
        q = of_rms(q, (-1,), o.q_norm_epsilon or o.qk_norm_epsilon)[0] * o.q_norm_weight
        k = of_rms(k, (-1,), o.k_norm_epsilon or o.qk_norm_epsilon)[0] * o.k_norm_weight
    total, length = int(o.total_sequence_length.reshape(-1)[0]), q.shape[2]
    # Keys before the new ones, [batch].
    before = o.seqlens_k.reshape(-1) + 1 - length
    if total == length:
        before = 0 * before
    places = before[:, None] + np.arange(length, dtype=np.int32)
    if o.do_rotary:
        ids = places if o.position_ids is None else o.position_ids
        _require_rows(total, o.cos_cache, o.node)
        tables = o.cos_cache, o.sin_cache, bool(o.rotary_interleaved), o.node
        q, k = (rotated(x, ids, *tables) for x in (q, k))
    present = [_extended(p, x, before, total) for p, x in ((o.past_key, k), (o.past_value, v))]
    keys, values = (x[:, :, :total] for x in present)
    return merged(_grouped(o, q, keys, values, _seen(o, places, total))), *present


def _extended(past: Any, new: Any, before: Any, total: int) -> Any:
    """The cache with the new elements of each batch entry after those that it has."""
    if past is None:
        past = jnp.zeros((*new.shape[:2], 0, new.shape[3]), new.dtype)
    buffer = jnp.pad(past, ((0, 0), (0, 0), (0, max(0, total - past.shape[2])), (0, 0)))
    if new.shape[2] == buffer.shape[2]:
        return new
    rows = [
        lax.dynamic_update_slice_in_dim(buffer[i], new[i], before[i], axis=1)
        for i in range(new.shape[0])
    ]
    return jnp.stack(rows)


def _seen(o: Given, places: Any, total: int) -> Any:
    """[batch, 1, queries, keys]: a key that is not after its query, nor out of the window; without
    `causal` any that is there."""
    key = np.arange(total, dtype=np.int32)
    if not o.causal:
        return (key <= jnp.asarray(o.seqlens_k).reshape(-1, 1))[:, None, None]
    seen: Any = key <= places[..., None]
    if o.local_window_size > 0:
        seen &= key > places[..., None] - o.local_window_size
    return seen[:, None]


def _grouped(o: Given, q: Any, k: Any, v: Any, seen: Any) -> Any:
    """Heads of queries in groups, each of which has one head of keys and values."""
    groups = q.shape[1] // k.shape[1]
    k, v = (jnp.repeat(x, groups, axis=1) for x in (k, v))
    scores: Any = matmul(q, jnp.swapaxes(k, -1, -2))
    scores = scores * np.asarray(o.scale or 1 / math.sqrt(q.shape[-1]), q.dtype)
    if o.softcap:
        cap = np.asarray(o.softcap, q.dtype)
        scores = cap * jnp.tanh(scores / cap)
    scores = scores if o.attention_bias is None else scores + o.attention_bias
    scores = jnp.where(seen, scores, np.asarray(np.finfo(np.float32).min, q.dtype))
    # Scores that are added to the row of each head, [heads] or [].
    sink = np.zeros((), np.float32) if o.head_sink is None else o.head_sink
    if o.head_sink is None and not o.smooth_softmax:
        return matmul(jax.nn.softmax(scores, axis=-1), v)
    extra = jnp.broadcast_to(jnp.reshape(sink, (-1, 1, 1)).astype(q.dtype), (*scores.shape[:3], 1))
    weights = jax.nn.softmax(jnp.concatenate([scores, extra], -1), axis=-1)[..., :-1]
    return matmul(weights, v)
