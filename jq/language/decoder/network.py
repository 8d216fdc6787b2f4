"""The network of every decoder here, on a page of JAX: tokens in, logits out, a cache in between.

    x = embedding[tokens]
    per layer:  x += norm?(attention(norm(x)));  x += norm?(feed_forward(norm(x)))
    logits = norm(x) @ head.T

`params` is the tree that `architectures` names; products read weights [out, in] as files have
them. What a tree has decides: a fused `qkv` or three products, biases, norms of q and k or after
a block, a head or the embedding again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

from jq.language.decoder.config import Config

# While it is a list, every product adds its weight and what it is multiplied by.
TAPS: ContextVar[list[tuple[Any, jax.Array]] | None] = ContextVar("TAPS", default=None)
cut = jax.lax.dynamic_slice_in_dim
Cache = tuple[jax.Array, jax.Array]  # keys and values [batch, capacity, kv_heads, head]

_GATES = {"silu": jax.nn.silu, "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True)}


def step(
    config: Config,
    params: Any,
    tokens: jax.Array,
    position: jax.Array,
    caches: Sequence[Cache],
    last: jax.Array | None = None,
) -> tuple[jax.Array, list[Cache]]:
    """Takes in `tokens` i32[batch, n], of which the first is at `position` i32[], or at one of its
    own in each sequence: i32[batch].

    `caches` hold a pair for each layer, filled in front of `position`; what lies after is not
    read, and position + n must not exceed their capacity. Returns logits
    f32[batch, n, vocabulary], or f32[batch, 1, vocabulary] of token `last` alone, which is of the
    shape of `position`, and the caches with the tokens' keys and values.
    """
    count = tokens.shape[1]
    with jax.named_scope("embed"):
        x = _f32(params["embed"]["weight"][tokens]) * config.embedding_scale
    turns = {
        name: (_rows(table["cos"], position, count), _rows(table["sin"], position, count))
        for name, table in params["rope"].items()
    }
    found = []
    for i, cache in enumerate(caches):
        p = params["layers"][str(i)]
        with jax.named_scope(f"layers/{i}"):
            turn = turns[config.rope_of[i]]
            x, cache = layer(config, p, x, position, turn, cache, config.windows[i])
        found.append(cache)
    if last is not None:
        x = cut(x, last, 1, axis=1) if last.ndim == 0 else _of_each(x, last)
    with jax.named_scope("head"):
        head = params.get("head", params["embed"])
        logits = dense(head, rms_norm(config, params["norm"], x))
    return capped(logits, config.logit_cap), found


def layer(
    config: Config,
    p: Any,
    x: jax.Array,
    position: jax.Array,
    turn: tuple[jax.Array, jax.Array],
    cache: Cache,
    window: int,
) -> tuple[jax.Array, Cache]:
    """What a layer makes of x [batch, n, hidden], and its cache with n more tokens."""
    y, cache = attention(config, p["attention"], x, position, turn, cache, window)
    x = x + y
    return x + feed_forward(config, p["mlp"], x), cache


def attention(
    config: Config,
    p: Any,
    x: jax.Array,
    position: jax.Array,
    turn: tuple[jax.Array, jax.Array],
    cache: Cache,
    window: int,
) -> tuple[jax.Array, Cache]:
    """Causal attention of x [batch, n, hidden] to the cache, which takes in x first."""
    batch, count, _ = x.shape
    with jax.named_scope("attention"):
        q, k, v = _projections(config, p, rms_norm(config, p["norm"], x))
        if "query_norm" in p:
            q, k = rms_norm(config, p["query_norm"], q), rms_norm(config, p["key_norm"], k)
        q, k = rotate(config, q, turn), rotate(config, k, turn)
        keys, values = (
            _updated(old, new.astype(old.dtype), position)
            for old, new in zip(cache, (k, v), strict=True)
        )
        query = q.reshape(batch, count, config.kv_heads, -1, config.head)
        with jax.named_scope("scores"):
            scores = jnp.einsum("bskgd,btkd->bkgst", query, _f32(keys)) * config.attention_scale
        here = position.reshape(*position.shape, *(1,) * 4 * position.ndim)
        here = here + jnp.arange(count)[:, None]
        there = jnp.arange(keys.shape[1])
        seen = there <= here
        if window:
            seen &= there > here - window
        scores = jnp.where(seen, capped(scores, config.attention_cap), -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1)
        with jax.named_scope("context"):
            y = jnp.einsum("bkgst,btkd->bskgd", weights, _f32(values))
        y = dense(p["output"], y.reshape(batch, count, -1), "output")
        return behind(config, p, y), (keys, values)


def _projections(config: Config, p: Any, x: jax.Array) -> list[jax.Array]:
    """Queries, keys and values, [batch, n, heads, head]."""
    heads = (config.heads, config.kv_heads, config.kv_heads)
    if "qkv" in p:
        ends = [config.heads * config.head, (config.heads + config.kv_heads) * config.head]
        parts = jnp.split(dense(p["qkv"], x, "qkv"), ends, axis=-1)
    else:
        parts = [dense(p[name], x, name) for name in ("query", "key", "value")]
    return [y.reshape(*x.shape[:2], n, -1) for y, n in zip(parts, heads, strict=True)]


def _rows(table: jax.Array, position: jax.Array, count: int) -> jax.Array:
    """`count` rows of a table from a position on, or from the position of each sequence."""
    if position.ndim == 0:
        return cut(table, position, count)
    return jnp.stack([cut(table, first, count) for first in position])


def _of_each(x: jax.Array, last: jax.Array) -> jax.Array:
    """Token `last` i32[batch] of each sequence of x [batch, n, hidden]: [batch, 1, hidden]."""
    return jnp.concatenate([cut(x[i : i + 1], at, 1, axis=1) for i, at in enumerate(last)])


def _updated(old: jax.Array, new: jax.Array, position: jax.Array) -> jax.Array:
    """A cache [batch, capacity, ...] with what is new from a position on, or from each one's."""
    if position.ndim == 0:
        return jax.lax.dynamic_update_slice(old, new, (0, position, 0, 0))
    for i, first in enumerate(position):
        old = jax.lax.dynamic_update_slice(old, new[i : i + 1], (i, first, 0, 0))
    return old


def rotate(config: Config, x: jax.Array, turn: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turns the pairs of every head of x [batch, n, heads, head]; cosines and sines [n, pairs], or
    of each sequence.

    Neighbours are brought apart and stay so: queries and keys alike, scores do not change.
    """
    cos, sin = (t[..., None, :] for t in turn)
    pairs = cos.shape[-1]
    x, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if config.pairs == "neighbours":
        a, b = x[..., 0::2], x[..., 1::2]
    else:
        a, b = x[..., :pairs], x[..., pairs:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def feed_forward(config: Config, p: Any, x: jax.Array) -> jax.Array:
    """down(gate(x) * up(x)) (Shazeer 2020), or the same of the experts that a router takes."""
    with jax.named_scope("mlp"):
        x = rms_norm(config, p["norm"], x)
        if "experts" not in p:
            return behind(config, p, gated(config, p, x))
        with jax.named_scope("router"):
            chance = jax.nn.softmax(dense(p["router"], x), axis=-1)
        best, chosen = jax.lax.top_k(chance, config.experts_used)
        share = best / best.sum(axis=-1, keepdims=True) if config.normal_shares else best
        total = jnp.zeros_like(x)
        for i in range(config.experts):
            weight = jnp.where(chosen == i, share, 0.0).sum(axis=-1, keepdims=True)
            with jax.named_scope(f"experts/{i}"):
                total = total + weight * gated(config, p["experts"][str(i)], x)
        return behind(config, p, total)


def gated(config: Config, p: Any, x: jax.Array) -> jax.Array:
    if "gate_up" in p:
        gate, up = jnp.split(dense(p["gate_up"], x, "gate_up"), 2, axis=-1)
    else:
        gate, up = dense(p["gate"], x, "gate"), dense(p["up"], x, "up")
    return dense(p["down"], _GATES[config.activation](gate) * up, "down")


def dense(p: Any, x: jax.Array, name: str = "product") -> jax.Array:
    """x [..., in] times weight [out, in], whose columns may stand in an `order` of their own."""
    with jax.named_scope(name):
        if "order" in p:
            x = x.at[..., p["order"]].get(mode="promise_in_bounds")
        if (taps := TAPS.get()) is not None:
            taps.append((p["weight"], x))
        y = x @ _f32(p["weight"]).T
        return y + p["bias"] if "bias" in p else y


def rms_norm(config: Config, p: Any, x: jax.Array) -> jax.Array:
    with jax.named_scope("norm"):
        mean = jnp.square(x).mean(axis=-1, keepdims=True)
        y: jax.Array = x * jax.lax.rsqrt(mean + config.epsilon) * p["weight"]
    return y


def behind(config: Config, p: Any, y: jax.Array) -> jax.Array:
    """The norm of a block's result, where the model has one."""
    return rms_norm(config, p["norm_after"], y) if "norm_after" in p else y


def capped(x: jax.Array, cap: float) -> jax.Array:
    return jnp.tanh(x / cap) * cap if cap else x


def _f32(x: Any) -> Any:
    return x.astype(jnp.float32)
