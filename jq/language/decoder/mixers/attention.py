"""Causal attention: queries to keys and values of all tokens so far, or of those in a window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jq.language.decoder.config import Config, Shape
from jq.language.decoder.mixers._base import Mixer, updated
from jq.language.decoder.products import Place, State, capped, dense, f32, jax, jnp, normed, unit


def attention(
    config: Config, i: int, p: Any, x: jax.Array, place: Place, cache: State
) -> tuple[jax.Array, State]:
    """Attention of x [batch, n, hidden] to the cache, which takes in x first."""
    q, k, v = _projections(config, p, x)
    q, gate = _queries(config, p, q, place.turn)
    k = _turned(config, p.get("key_norm"), k, place.turn)
    if config.get("unit_values"):
        v = unit(v, config.epsilon)
    cache = tuple(updated(old, y, place.position) for old, y in zip(cache, (k, v), strict=True))
    place.held[str(config.windows[i] > 0)] = cache
    return _attended(config, i, p, q, gate, cache, place), cache


def shared(
    config: Config, i: int, p: Any, x: jax.Array, place: Place, cache: State
) -> tuple[jax.Array, State]:
    """The same, to the cache of the last layer that has one, of those with a window or without."""
    q = dense(p["query"], x, "query").reshape(*x.shape[:2], config.heads, -1)
    q, gate = _queries(config, p, q, place.turn)
    return _attended(config, i, p, q, gate, place.held[str(config.windows[i] > 0)], place), cache


def _queries(
    config: Config, p: Any, q: jax.Array, turn: dict[str, jax.Array]
) -> tuple[jax.Array, jax.Array | None]:
    """Queries normed and turned, and a gate of the results where it stands beside them."""
    gate = None
    if config.get("gated_heads"):
        q, gate = jnp.split(q, 2, axis=-1)
    q = _turned(config, p.get("query_norm"), q, turn)
    return (q * turn["heat"][..., None, None] if "heat" in turn else q), gate


def _attended(
    config: Config, i: int, p: Any, q: jax.Array, gate: jax.Array | None, cache: State, place: Place
) -> jax.Array:
    """The last product of what queries [batch, n, heads, head] read of keys and values."""
    batch, count = q.shape[:2]
    keys, values = cache
    query = q.reshape(batch, count, config.kv_heads, -1, config.head)
    with jax.named_scope("scores"):
        scores = jnp.einsum("bskgd,btkd->bkgst", query, f32(keys)) * config.attention_scale
    seen = visible(place.position, count, keys.shape[1], config.windows[i], config.chunks)
    scores = jnp.where(seen, capped(scores, config.attention_cap), -jnp.inf)
    weights = _softmax(scores, p)
    with jax.named_scope("context"):
        y = jnp.einsum("bkgst,btkd->bskgd", weights, f32(values))
    y = y.reshape(batch, count, -1)
    if gate is not None:
        y = y * jax.nn.sigmoid(gate.reshape(batch, count, -1))
    return dense(p["output"], y, "output")


def visible(position: jax.Array, count: int, capacity: int, window: int, chunks: bool) -> jax.Array:
    """True where one of `count` queries sees one of `capacity` keys; fits [batch, k, g, s, t]."""
    here = position.reshape(*position.shape, *(1,) * 4 * position.ndim)
    here = here + jnp.arange(count)[:, None]
    there = jnp.arange(capacity)
    seen: jax.Array = there <= here
    if window:
        seen &= there >= here - here % window if chunks else there > here - window
    return seen


def _softmax(scores: jax.Array, p: Any) -> jax.Array:
    """Over keys; a `sinks` of each head takes a share that goes nowhere (Agarwal et al. 2025)."""
    if "sinks" not in p:
        return jax.nn.softmax(scores, axis=-1)
    sinks = f32(p["sinks"]["weight"]).reshape(*scores.shape[1:3], 1, 1)
    top = jnp.maximum(scores.max(axis=-1, keepdims=True), sinks)
    shares = jnp.exp(scores - top)
    return shares / (shares.sum(axis=-1, keepdims=True) + jnp.exp(sinks - top))


def _turned(config: Config, norm: Any, x: jax.Array, turn: dict[str, jax.Array]) -> jax.Array:
    """x [batch, n, heads, head] normed, where there is a norm, and turned; or turned first."""
    late = norm is not None and config.get("turned_first")
    x = x if late or norm is None else _heads_normed(config, norm, x)
    x = rotate(config, x, turn)
    if config.get("unit_heads") and "cos" in turn:
        x = unit(x, config.epsilon)
    return _heads_normed(config, norm, x) if late else x


def _heads_normed(config: Config, p: Any, x: jax.Array) -> jax.Array:
    """x [batch, n, heads, head] by a norm of all heads alike, of each, or of all as one row."""
    if not config.get("norms_of_all_heads"):
        return normed(config, p, x)
    return normed(config, p, x.reshape(*x.shape[:2], -1)).reshape(x.shape)


def _projections(config: Config, p: Any, x: jax.Array) -> list[jax.Array]:
    """Queries, keys and values, [batch, n, heads, head]."""
    heads = (config.heads, config.kv_heads, config.kv_heads)
    if "qkv" in p and config.get("heads_together"):  # those of each head in turn
        every = dense(p["qkv"], x, "qkv").reshape(*x.shape[:2], config.heads, -1)
        return jnp.split(every, 3, axis=-1)
    if "qkv" in p:
        ends = [config.heads * config.head, (config.heads + config.kv_heads) * config.head]
        parts = jnp.split(dense(p["qkv"], x, "qkv"), ends, axis=-1)
    else:
        parts = [dense(p[n], x, n) for n in ("query", "key", "value") if n in p]
        parts = [*parts, parts[-1]][:3]  # values may be what keys are
    if clip := config.get("clip"):
        parts = [jnp.clip(y, -clip, clip) for y in parts]
    return [y.reshape(*x.shape[:2], n, -1) for y, n in zip(parts, heads, strict=True)]


def rotate(config: Config, x: jax.Array, turn: dict[str, jax.Array]) -> jax.Array:
    """Turns pairs of every head of x [batch, n, heads, head]; cosines and sines [n, pairs], or of
    each sequence. Neighbours come apart and stay so in queries and keys: scores do not change."""
    if "cos" not in turn:
        return x
    cos, sin = (turn[name][..., None, :] for name in ("cos", "sin"))
    pairs = cos.shape[-1]
    x, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if config.pairs == "neighbours":
        a, b = x[..., 0::2], x[..., 1::2]
    else:
        a, b = x[..., :pairs], x[..., pairs:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def _states(config: Config, batch: int, capacity: int) -> tuple[Shape, ...]:
    return ((batch, capacity, config.kv_heads, config.head),) * 2


def _shapes(config: Config, p: Any) -> dict[str, Shape]:
    every, shared = config.heads * config.head, config.kv_heads * config.head
    found: dict[str, Shape] = {"output": (config.hidden, every)}
    if "qkv" in p:
        found["qkv"] = (every + 2 * shared, config.hidden)
    else:
        asked = 2 * every if config.get("gated_heads") else every
        sizes = {"query": asked, "key": shared, "value": shared}
        wide = config.get("values_are_keys") and config.head == config.get("wide_head")
        if wide and "value" not in p:
            del sizes["value"]
        found |= {name: (size, config.hidden) for name, size in sizes.items()}
    if "query_norm" in p or "key_norm" in p or config.get("normed_heads"):
        whole, apart = config.get("norms_of_all_heads"), config.get("norms_by_head")
        for name, heads in (("query_norm", config.heads), ("key_norm", config.kv_heads)):
            one = (heads, config.head) if apart else (config.head,)
            found[name] = (heads * config.head,) if whole else one
    if "sinks" in p or config.get("sinks"):
        found["sinks"] = (config.heads,)
    return found


def _shared_shapes(config: Config, p: Any) -> dict[str, Shape]:
    own = ("query", "output", "sinks")  # keys and values are another layer's
    found = _shapes(config, p)
    return {name: shape for name, shape in found.items() if name.partition("_")[0] in own}


def _wide(function: Any) -> Any:
    """The same for layers whose heads have another width, and another count of keys."""

    def of(config: Config, *given: Any) -> Any:
        kv_heads = config.get("wide_kv_heads") or config.kv_heads
        return function(replace(config, head=config.get("wide_head"), kv_heads=kv_heads), *given)

    return of


Mixer("attention", attention, _states, _shapes, grows=True)
Mixer("shared_attention", shared, lambda *sizes: (), _shared_shapes, grows=True)
Mixer("wide_attention", _wide(attention), _wide(_states), _wide(_shapes), grows=True)
Mixer("shared_wide_attention", _wide(shared), lambda *_: (), _wide(_shared_shapes), grows=True)
