"""Multi-head latent attention (DeepSeek-AI 2024): what is kept of a token is one short vector that
the keys and values of all heads are made of, and one key that is turned.

Keys are never made: a query is taken to the short vectors' space, and so is what it reads of them.
"""

from __future__ import annotations

from typing import Any

from jq.language.decoder.config import Config, Shape
from jq.language.decoder.mixers._base import Mixer, updated
from jq.language.decoder.mixers.attention import rotate, visible
from jq.language.decoder.products import Place, State, dense, f32, jax, jnp, unit


def latent(
    config: Config, i: int, p: Any, x: jax.Array, place: Place, cache: State
) -> tuple[jax.Array, State]:
    """Attention of x [batch, n, hidden] to the cache: vectors [batch, capacity, 1, rank] and turned
    keys [batch, capacity, 1, turned]."""
    batch, count, _ = x.shape
    rank, turned = config.sizes("rank turned")
    plain = config.head - turned
    q = _queries(config, p, x).reshape(batch, count, config.heads, config.head)
    down = dense(p["kv_down"], x, "kv_down")
    short = _normed(config, p["kv_norm"], down[..., :rank])[:, :, None]
    turning = rotate(config, q[..., plain:], place.turn)
    key = rotate(config, down[:, :, None, rank:], place.turn)
    shorts, keys = (updated(o, n, place.position) for o, n in zip(cache, (short, key), strict=True))
    key_up, value_up = _up(config, p)
    seen = visible(place.position, count, keys.shape[1], config.windows[i], config.chunks)
    with jax.named_scope("scores"):
        inward = jnp.einsum("bshd,hdr->bshr", q[..., :plain], key_up)
        scores = jnp.einsum("bshr,btr->bhst", inward, f32(shorts[:, :, 0]))
        scores = scores + jnp.einsum("bshr,btr->bhst", turning, f32(keys[:, :, 0]))
    seen = seen.reshape(*seen.shape[:1], *seen.shape[2:]) if seen.ndim == 5 else seen
    scores = jnp.where(seen, scores * config.attention_scale, -jnp.inf)
    with jax.named_scope("context"):
        y = jnp.einsum("bhst,btr->bshr", jax.nn.softmax(scores, axis=-1), f32(shorts[:, :, 0]))
        y = jnp.einsum("bshr,hvr->bshv", y, value_up)
    return dense(p["output"], y.reshape(batch, count, -1), "output"), (shorts, keys)


def _queries(config: Config, p: Any, x: jax.Array) -> jax.Array:
    if "query_down" not in p:
        return dense(p["query"], x, "query")
    narrow = _normed(config, p["query_norm"], dense(p["query_down"], x, "query_down"))
    return dense(p["query_up"], narrow, "query_up")


def _normed(config: Config, p: Any, x: jax.Array) -> jax.Array:
    y: jax.Array = unit(x, config.get("latent_epsilon")) * p["weight"]
    return y


def _up(config: Config, p: Any) -> tuple[jax.Array, jax.Array]:
    """Matrices of keys [heads, plain, rank] and of values [heads, value, rank]. Files
    hold both in one matrix, or each alone, and keys' then the other way round."""
    plain, rank = config.head - config.get("turned"), config.get("rank")
    if "kv_up" in p:
        both = f32(p["kv_up"]["weight"]).reshape(config.heads, -1, rank)
        return both[:, :plain], both[:, plain:]
    return jnp.swapaxes(f32(p["key_up"]["weight"]), 1, 2), f32(p["value_up"]["weight"])


def _states(config: Config, batch: int, capacity: int) -> tuple[Shape, ...]:
    return (batch, capacity, 1, config.get("rank")), (batch, capacity, 1, config.get("turned"))


def _shapes(config: Config, p: Any) -> dict[str, Shape]:
    rank, turned, value = config.sizes("rank turned value")
    wide = config.heads * config.head
    found: dict[str, Shape] = {"kv_down": (rank + turned, config.hidden)}
    if query := config.get("query_rank"):
        found |= {"query_down": (query, config.hidden), "query_norm": (query,)}
        found |= {"query_up": (wide, query)}
    else:
        found |= {"query": (wide, config.hidden)}
    found |= {"kv_norm": (rank,), "output": (config.hidden, config.heads * value)}
    if "kv_up" in p:
        return found | {"kv_up": (wide + config.heads * (value - turned), rank)}
    found |= {"key_up": (config.heads, rank, config.head - turned)}
    return found | {"value_up": (config.heads, value, rank)}


Mixer("latent", latent, _states, _shapes, grows=True)
