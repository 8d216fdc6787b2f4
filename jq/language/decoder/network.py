"""The network of every decoder here: tokens in, logits out, states in between.

    x = embedding[tokens]
    per layer:  x += norm?(mixers(norm?(x)));  x += norm?(feed_forward(norm?(x)))
    logits = norm(x) @ head.T

`params` is the tree that `architectures` names; products read weights [out, in] as files have
them. What a tree has decides: a fused `qkv` or three products, biases, norms of q and k, before or
after a block, a head or the embedding again. What mixes tokens is in `mixers`.

Some have several residual streams (AltUp; Baykal et al. 2023), of which a layer computes with the
first: what it would make of all is predicted before, and corrected behind it. Beside the mixer
stands a product of low rank (LAuReL; Menghani et al. 2024)."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jq.language.decoder.config import Config
from jq.language.decoder.feed_forward import GATES, feed_forward
from jq.language.decoder.mixers import Mixer
from jq.language.decoder.mixers._base import rows_of
from jq.language.decoder.products import Place, State, behind, capped, cut, dense, f32, normed

_LEAST = 1e-5  # of the mean square of a stream


def step(
    config: Config,
    params: Any,
    tokens: jax.Array,
    position: jax.Array,
    states: Sequence[State],
    last: jax.Array | None = None,
    count: jax.Array | None = None,
) -> tuple[jax.Array, list[State]]:
    """Takes in `tokens` i32[batch, n], of which the first is at `position` i32[], or at one of its
    own in each sequence: i32[batch].

    `states` has those of each layer's mixers (see `state_shapes`). Keys and values are filled in
    front of `position`; what lies after is not read, and position + n must not exceed their
    capacity. Of the tokens the first `count`, of the shape of `position`, are there, and the rest
    padding; None for all. Returns logits f32[batch, n, vocabulary], or f32[batch, 1, vocabulary] of
    token `last` alone, which is of the shape of `position`, and the states with the tokens."""
    width = tokens.shape[1]
    with jax.named_scope("embed"):
        x = f32(params["embed"]["weight"][tokens]) * config.embedding_scale
    turns = {
        name: {part: rows_of(table, position, width) for part, table in tables.items()}
        for name, tables in params["rope"].items()
    }
    x = x + turns["positions"]["rows"] if "positions" in turns else x
    extra = _of_layers(config, params["per_layer"], tokens, x) if "per_layer" in params else None
    x = spread(params["spread"], x) if "spread" in params else x
    found, held = [], dict[str, State]()
    for i, state in enumerate(states):
        own = None if extra is None else extra[:, :, i]
        place = Place(position, turns.get(config.rope_of[i], {}), count, own, held)
        with jax.named_scope(f"layers/{i}"):
            x, state = layer(config, i, params["layers"][str(i)], x, place, state)
        found.append(state)
    x = gathered(params["gather"], x) if "gather" in params else x
    if last is not None:
        each = [(x, last)] if last.ndim == 0 else [(x[i : i + 1], n) for i, n in enumerate(last)]
        x = jnp.concatenate([cut(rows, n, 1, axis=1) for rows, n in each])
    with jax.named_scope("head"):
        head = params.get("head", params["embed"])
        logits = dense(head, normed(config, params["norm"], x))
    if config.get("logit_scale", 1.0) != 1.0:
        logits = logits * config.get("logit_scale")
    return capped(logits, config.logit_cap), found


def layer(
    config: Config, i: int, p: Any, x: jax.Array, place: Place, state: State
) -> tuple[jax.Array, State]:
    """Layer `i` of x [batch, n, hidden] or streams [count, batch, n, hidden], and its new state."""
    all_streams, scale = None, config.residual_scale
    if "streams" in p:
        all_streams = predicted(config, p["streams"], x)
        x = all_streams[0]
    block = p["attention"]
    with jax.named_scope("attention"):
        within = normed(config, block["norm"], x) if "norm" in block else x
        y, kept = _mixed(config, i, p, within, place, state)
        y = behind(config, block, y)
    if config.parallel and ("norm" not in p["mlp"] or config.get("two_norms")):
        within = x if "norm" in p["mlp"] else within
        return x + y * scale + feed_forward(config, i, p["mlp"], within) * scale, kept
    x = x + y * scale if scale != 1 else x + y
    if "beside" in p:
        low = dense(p["beside"]["right"], dense(p["beside"]["left"], within))
        x = (x + (within + normed(config, p["beside"]["norm"], low))) * 2**-0.5
    y = feed_forward(config, i, p["mlp"], x)
    x = x + y * scale if scale != 1 else x + y
    if all_streams is not None:
        all_streams = corrected(config, p["streams"], all_streams, x)
        own = _own(config, p, all_streams[0] * p["streams"]["scale"]["weight"], place)
        return jnp.concatenate([all_streams[:1], all_streams[1:] + own]), kept
    if "per_layer" in p:
        x = x + _own(config, p, x, place)
    return x * p["scalar"]["weight"] if "scalar" in p else x, kept


def _mixed(
    config: Config, i: int, p: Any, x: jax.Array, place: Place, state: State
) -> tuple[jax.Array, State]:
    """The sum of the mixers of layer `i` on x, and their states."""
    y, kept = x, tuple[jax.Array, ...]()
    for n, name in enumerate(config.mixers[i]):
        mixer, node = Mixer.registry[name], p.get(name, p["attention"])
        count = len(mixer.states(config, 1, 1))
        given, own = mixer.mix(config, i, node, x, place, state[:count])
        state = state[count:]
        y, kept = (y + given if n else given), (*kept, *own)
    return y, kept


def _own(config: Config, p: Any, x: jax.Array, place: Place) -> jax.Array:
    """The layer's own input, as much of it as x lets in."""
    own = p["per_layer"]
    assert place.extra is not None
    y = GATES[config.activation](dense(own["gate"], x, "gate"), place.extra)
    return normed(config, own["norm"], dense(own["projection"], y, "projection"))


def _of_layers(config: Config, p: Any, tokens: jax.Array, x: jax.Array) -> jax.Array:
    """Inputs of each layer beside x [batch, n, hidden]: f32[batch, n, layers, width], of the
    tokens and of x."""
    shape = (*tokens.shape, config.layers, -1)
    known = p["table"]["weight"].shape[0]
    tokens = jnp.where(tokens < known, tokens, 0) if known < config.vocabulary else tokens
    table = f32(p["table"]["weight"][tokens]).reshape(shape) * config.get("per_layer") ** 0.5
    seen = dense(p["projection"], x).reshape(shape) * config.hidden**-0.5
    return (normed(config, p["norm"], seen) + table) * 2**-0.5


def state_shapes(
    config: Config, batch: int, capacity: int
) -> list[list[tuple[tuple[int, ...], bool]]]:
    """Per layer, the shape of each of its states, and whether it grows with the sequence."""
    return [
        [
            (shape, Mixer.registry[name].grows)
            for name in mixers
            for shape in Mixer.registry[name].states(config, batch, capacity)
        ]
        for mixers in config.mixers
    ]


def empty(config: Config, batch: int, capacity: int, dtype: Any = jnp.float32) -> list[State]:
    """States of no tokens; `dtype` of those that grow, the others are f32."""
    return [
        tuple(jnp.zeros(shape, dtype if grows else jnp.float32) for shape, grows in shapes)
        for shapes in state_shapes(config, batch, capacity)
    ]


def spread(p: Any, x: jax.Array) -> jax.Array:
    """Streams [count, batch, n, hidden]: x, and products of x as large as x."""
    return jnp.stack([x, *(_as_large(x, dense(p[str(i)], x)) for i in range(len(p)))])


def gathered(p: Any, streams: jax.Array) -> jax.Array:
    """Their mean, each through a product of its own, as large as the first."""
    first = streams[0]
    rest = [_as_large(first, dense(p[str(i)], streams[i + 1])) for i in range(len(p))]
    return jnp.stack([first, *rest]).mean(axis=0)


def _as_large(x: jax.Array, y: jax.Array) -> jax.Array:
    wanted, found = (jnp.square(t).mean(axis=-1, keepdims=True) for t in (x, y))
    return y * jnp.sqrt(wanted) / jnp.sqrt(jnp.maximum(found, _LEAST))


def predicted(config: Config, p: Any, streams: jax.Array) -> jax.Array:
    """A guess at what the layer makes of the streams, by what is in the first of them."""
    count = len(streams)
    mixes = dense(p["predict"], _kinds(config, p, streams[0]))
    mixes = mixes.reshape(*mixes.shape[:-1], count, count)
    return streams + jnp.einsum("sbnh,bnts->tbnh", streams, mixes)


def corrected(config: Config, p: Any, streams: jax.Array, made: jax.Array) -> jax.Array:
    """Predictions moved by how far the first was off what the layer `made`."""
    shares = dense(p["correct"], _kinds(config, p, made)) + 1
    return streams + jnp.moveaxis(shares, -1, 0)[..., None] * (made - streams[0])


def _kinds(config: Config, p: Any, x: jax.Array) -> jax.Array:
    return jnp.tanh(dense(p["router"], normed(config, p["norm"], x) / config.hidden))
