"""The feed-forward layers: with a gate, without, and several that a router chooses from."""

from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.language.decoder.config import Config
from jq.language.decoder.products import INPUTS, behind, dense, normed


def _gelu(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=True)


def _clipped(gate: jax.Array, up: jax.Array) -> jax.Array:
    """The gate of gpt-oss: x sigmoid(1.702 x), both sides bounded by 7."""
    gate, up = jnp.minimum(gate, 7.0), jnp.clip(up, -7.0, 7.0)
    return gate * jax.nn.sigmoid(1.702 * gate) * (up + 1)


_PLAIN: dict[str, Callable[[jax.Array], jax.Array]] = {"silu": jax.nn.silu, "gelu_tanh": _gelu}
_PLAIN |= {"gelu": lambda x: jax.nn.gelu(x, approximate=False), "relu": jax.nn.relu}


def _times(act: Callable[[jax.Array], jax.Array], gate: jax.Array, up: jax.Array) -> jax.Array:
    return act(gate) * up


GATES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    name: partial(_times, act) for name, act in _PLAIN.items()
}
GATES["swiglu_oai"] = _clipped


def feed_forward(config: Config, i: int, p: Any, x: jax.Array) -> jax.Array:
    """down(gate(x) * up(x)) (Shazeer 2020), or the same of the experts that a router takes, plus
    that of one that all tokens take where there is one."""
    with jax.named_scope("mlp"):
        x = normed(config, p["norm"], x) if "norm" in p else x
        y = _routed(config, p, x) if "experts" in p else None
        if "shared" in p:
            shared = gated(config, p["shared"], x)
            if "router" in p["shared"]:
                shared = shared * jax.nn.sigmoid(dense(p["shared"]["router"], x))
            y = shared if y is None else y + shared
        sparse = config.get("sparsity", ())
        cut = NormalDist().inv_cdf(sparse[i]) if sparse and sparse[i] else None
        return behind(config, p, gated(config, p, x, cut) if y is None else y)


def _routed(config: Config, p: Any, x: jax.Array) -> jax.Array:
    sigmoid = config.get("router") == "sigmoid"
    with jax.named_scope("router"):
        logits = dense(p["router"], x)
        chance = jax.nn.sigmoid(logits) if sigmoid else jax.nn.softmax(logits, axis=-1)
    if "preference" in p["router"]:
        _, chosen = jax.lax.top_k(chance + p["router"]["preference"], config.experts_used)
        best = jnp.take_along_axis(chance, chosen, axis=-1)
    else:
        best, chosen = jax.lax.top_k(chance, config.experts_used)
    share = best / best.sum(axis=-1, keepdims=True) if config.normal_shares else best
    share = share * config.get("share_scale", 1.0)
    if INPUTS.get() is None:
        return _of_chosen(config, p["experts"], x, chosen, share)
    total = jnp.zeros_like(x)
    for i in range(config.experts):  # measured on all tokens, as if the router sent each to all
        weight = jnp.where(chosen == i, share, 0.0).sum(axis=-1, keepdims=True)
        total = _with_one(config, p["experts"], i, total, x, weight)
    return total


ROWS = 16  # that an expert takes at a time


def _of_chosen(
    config: Config, experts: Any, x: jax.Array, chosen: jax.Array, share: jax.Array
) -> jax.Array:
    """The sum of what each token's experts give, in the order of their numbers.

    An expert takes its tokens in groups of at most `ROWS`; one that nobody chose is not read. Rows
    of a group without a token go behind those of the tokens, each to a place of its own.
    """
    flat, count = x.reshape(-1, x.shape[-1]), x.shape[0] * x.shape[1]
    size = min(ROWS, count)
    numbers, steps, tokens = (np.arange(n, dtype=np.int32) for n in (config.experts, size, count))
    picked = chosen.reshape(count, -1)[..., None] == numbers
    taken = picked.any(axis=1)
    shares = jnp.where(picked, share.reshape(count, -1, 1), 0.0).sum(axis=1)
    place = jnp.cumsum(taken.astype(jnp.int32), axis=0) - taken  # among the rows of the expert
    groups = (taken.sum(axis=0, dtype=jnp.int32) + size - 1) // size

    def added(i: int, carried: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        at, total = carried
        here = taken[:, i, None] & (place[:, i, None] == at * size + steps)  # [count, size]
        rows = jnp.where(here, tokens[:, None], 0).sum(axis=0)
        weight = jnp.where(here, shares[:, i, None], 0.0).sum(axis=0)
        y = _of_one(config, experts, i, flat[rows], weight[:, None])
        to = total.at[jnp.where(here.any(axis=0), rows, count + steps)]
        return at + 1, to.add(y, unique_indices=True, mode="promise_in_bounds")

    def left(i: int, carried: tuple[jax.Array, jax.Array]) -> jax.Array:
        return carried[0] < groups[i]

    if count == 1:  # there are no rows to be sought
        found = jnp.zeros_like(x)
        for i in range(config.experts):
            add = partial(_with_one, config, experts, i)
            given = (found, x, shares[:, i, None])
            found = jax.lax.cond(taken[0, i], add, lambda found, *_: found, *given)
        return found
    total = jnp.zeros((count + size, x.shape[-1]), jnp.float32)
    for i in range(config.experts):
        start = (jnp.int32(0), total)
        _, total = jax.lax.while_loop(partial(left, i), partial(added, i), start)
    return total[:count].reshape(x.shape)


def _with_one(
    config: Config, experts: Any, i: int, total: jax.Array, x: jax.Array, weight: jax.Array
) -> jax.Array:
    return total + _of_one(config, experts, i, x, weight)


def _of_one(config: Config, experts: Any, i: int, x: jax.Array, weight: jax.Array) -> jax.Array:
    """The result of an expert for x [..., hidden], times a weight of each."""
    with jax.named_scope(f"experts/{i}"):
        if config.get("shares_go_in"):
            return gated(config, experts[str(i)], x * weight)
        return weight * gated(config, experts[str(i)], x)


def gated(config: Config, p: Any, x: jax.Array, cut: float | None = None) -> jax.Array:
    """down(gate(x) * up(x)), or down(act(up(x))) where there is no gate. Gates come in as how far
    they are above their mean and `cut` deviations, where it is given."""
    gate_up = GATES[config.activation]
    if "gate_up" in p:
        both = dense(p["gate_up"], x, "gate_up")
        if config.get("gates_alternate"):
            gate, up = both[..., 0::2], both[..., 1::2]
        else:
            gate, up = jnp.split(both, 2, axis=-1)
    elif "gate" in p:
        gate, up = dense(p["gate"], x, "gate"), dense(p["up"], x, "up")
    else:
        return dense(p["down"], _PLAIN[config.activation](dense(p["up"], x, "up")), "down")
    if cut is not None:
        least = gate.mean(axis=-1, keepdims=True) + cut * gate.std(axis=-1, keepdims=True)
        gate = jax.nn.relu(gate - least)
    return dense(p["down"], gate_up(gate, up), "down")
