"""The feed-forward layers: with a gate, without, and several that a router chooses from."""

from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp

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
    one, total = x.shape[0] * x.shape[1] == 1, jnp.zeros_like(x)
    taken = (chosen.reshape(-1, 1) == jnp.arange(config.experts)).any(axis=0)
    for i in range(config.experts):
        weight = jnp.where(chosen == i, share, 0.0).sum(axis=-1, keepdims=True)
        add, given = partial(_with_expert, config, p["experts"], i), (total, x, weight)
        if one and INPUTS.get() is None:  # one that is not chosen is not computed, nor read
            total = jax.lax.cond(taken[i], add, lambda total, *_: total, *given)
        else:
            total = add(*given)
    return total


def _with_expert(
    config: Config, experts: Any, i: int, total: jax.Array, x: jax.Array, weight: jax.Array
) -> jax.Array:
    with jax.named_scope(f"experts/{i}"):
        if config.get("shares_go_in"):
            return total + gated(config, experts[str(i)], x * weight)
        return total + weight * gated(config, experts[str(i)], x)


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
