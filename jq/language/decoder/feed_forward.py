"""The feed-forward layers: with a gate, without, and several that a router chooses from."""

from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.language.decoder.architectures.names import CURVE
from jq.language.decoder.config import Config
from jq.language.decoder.products import ACTIVATIONS, INPUTS, behind, dense, f32, normed


def _clipped(gate: jax.Array, up: jax.Array) -> jax.Array:
    """The gate of gpt-oss: x sigmoid(1.702 x), both sides bounded by 7."""
    gate, up = jnp.minimum(gate, 7.0), jnp.clip(up, -7.0, 7.0)
    return gate * jax.nn.sigmoid(1.702 * gate) * (up + 1)


def _xielu(p: Any, x: jax.Array) -> jax.Array:
    """The activation of Apertus, whose two sides have learned slopes (arXiv:2411.13010)."""
    above, below, beta, least = (f32(p[name]["weight"]) for name in CURVE)
    line = (beta + jax.nn.softplus(below)) * (jnp.expm1(jnp.minimum(x, least)) - x)
    return jnp.where(x > 0, jax.nn.softplus(above) * x * x, line) + beta * x


GATES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    name: lambda gate, up, act=act: act(gate) * up for name, act in ACTIVATIONS.items()
} | {"swiglu_oai": _clipped}


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
    grouped = config.get("groups", 1) > 1
    if config.get("reach"):
        best, chosen = _of_those_near(config, logits)
    elif "preference" in p["router"] or grouped:
        more = p["router"].get("preference")
        # [experts], or [1, experts] as in files of Ernie.
        wanted = chance if more is None else chance + more.reshape(-1)
        wanted = _of_best_groups(config, wanted) if grouped else wanted
        _, chosen = jax.lax.top_k(wanted, config.experts_used)
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
        first, last = (weight, 1.0) if config.get("shares_go_in") else (1.0, weight)
        total = total + last * gated(config, p["experts"][str(i)], x * first)
    return total


def _of_those_near(config: Config, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The best experts, one after the other, each with its chance among what is left and within
    `reach` of it, as a share (Liu et al. 2024)."""
    left, found = logits, []
    for _ in range(config.experts_used):
        top = left.max(axis=-1, keepdims=True)
        far = (top - logits) / jnp.maximum(jnp.abs(logits), top) > config.get("reach")
        found.append(jax.lax.top_k(jax.nn.softmax(jnp.where(far, -jnp.inf, left), axis=-1), 1))
        left = jnp.where(jnp.arange(config.experts) == found[-1][1], -jnp.inf, left)
    best, chosen = (jnp.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))
    return best, chosen


def _of_best_groups(config: Config, wanted: jax.Array) -> jax.Array:
    """-inf outside the `groups_used` groups whose two best sum to the most (DeepSeek-AI 2024)."""
    groups = wanted.reshape(*wanted.shape[:-1], config.get("groups"), -1)
    best = jax.lax.top_k(groups, 2)[0].sum(axis=-1)
    least = jax.lax.top_k(best, config.get("groups_used"))[0][..., -1:]
    return jnp.where((best >= least)[..., None], groups, -jnp.inf).reshape(wanted.shape)


FEW_ROWS, ROWS = 4, 16  # that an expert takes at a time
_SURE: dict[str, Any] = {"mode": "promise_in_bounds"}


def _of_chosen(
    config: Config, experts: Any, x: jax.Array, chosen: jax.Array, share: jax.Array
) -> jax.Array:
    """The sum of what each token's experts give: of a row for each, sorted by expert, in tiles that
    take one each. An expert that nobody chose is not read."""
    count, used, stacks = x.shape[0] * x.shape[1], config.experts_used, "0" not in experts
    picked, share = chosen.reshape(count, used), share.reshape(count, used)
    source = np.arange(count * used, dtype=np.int32) // used
    rows = jnp.asarray(source)
    if count == 1 and stacks:  # nothing is to be sorted
        height, ends, number = 1, picked[0], picked[0]
        place = jnp.arange(used, dtype=jnp.int32)[None]
    else:
        height, ends, number, place = _tiles(picked, config.experts)
        empty = jnp.zeros(number.shape[0] * height, jnp.int32)
        rows = empty.at[place.reshape(-1)].set(source, **_SURE, unique_indices=True)
    given = x.reshape(count, -1).at[rows].get(**_SURE)
    if config.get("shares_go_in"):
        at = jnp.zeros(rows.shape).at[place.reshape(-1)].set(share.reshape(-1), **_SURE)
        given, share = given * at[:, None], jnp.ones_like(share)
    given = given.reshape(-1, height, x.shape[-1])
    if stacks:
        y = _side_by_side(config, experts, given, number)
    else:
        y = _in_turn(config, experts, given, ends)
    y = y.reshape(-1, x.shape[-1]).at[place].get(**_SURE) * share[..., None]
    parts = jnp.split(y, used, axis=1)
    return sum(parts[1:], parts[0]).reshape(x.shape)


def _tiles(picked: jax.Array, experts: int) -> tuple[int, jax.Array, jax.Array, jax.Array]:
    """Rows of a tile, the tile behind those of each expert, the expert of each tile (`experts`
    where it is left over), and the row of every choice [tokens, choices]."""
    count, used = picked.shape
    height = FEW_ROWS if count * used <= FEW_ROWS * experts else ROWS
    height = min(height, count)
    most = (count * used + experts * (height - 1)) // height
    most = min(most, count * used, experts * -(-count // height))
    taken = picked[..., None] == np.arange(experts, dtype=np.int32)
    until = _sums(taken.any(axis=1).astype(jnp.int32))
    tiles = jax.lax.div(until[-1] + np.int32(height - 1), np.int32(height))
    ends = _sums(tiles)
    place = (ends - tiles) * height + until - 1
    number = (ends <= np.arange(most, dtype=np.int32)[:, None]).sum(axis=1, dtype=jnp.int32)
    return height, ends, number, jnp.where(taken, place[:, None], 0).sum(axis=-1)


def _sums(x: jax.Array) -> jax.Array:
    """Those up to each entry i32 of the first axis, as a product, which IREE computes faster."""
    return jnp.matmul(np.tri(len(x), dtype=np.int32), x)


def _side_by_side(config: Config, experts: Any, x: jax.Array, number: jax.Array) -> jax.Array:
    """Tiles x [tiles, rows, hidden] by weights in stacks [experts, out, in]: of all in one product,
    which a kernel computes; 0 where there is no expert of such a number."""
    there = (number < config.experts)[:, None, None]

    def product(p: Any, x: jax.Array, name: str) -> jax.Array:
        with jax.named_scope(name):
            weight = f32(p["weight"].at[number].get(mode="clip"))
            y = jax.lax.dot_general(x, weight, (((2,), (2,)), ((0,), (0,))))
            y = jnp.where(there, y, 0.0)
            return y + p["bias"].at[number].get(mode="clip")[:, None] if "bias" in p else y

    with jax.named_scope("experts"):
        return gated(config, experts, x, None, product)


def _in_turn(config: Config, experts: Any, x: jax.Array, ends: jax.Array) -> jax.Array:
    """The same by one expert after the other; each tile's result takes its place."""
    first = jnp.int32(0)
    for i in range(config.experts):

        def one(tile: jax.Array, x: jax.Array, p: Any = experts[str(i)]) -> jax.Array:
            y = gated(config, p, jax.lax.dynamic_index_in_dim(x, tile, keepdims=False))
            return jax.lax.dynamic_update_index_in_dim(x, y, tile, 0)

        with jax.named_scope(f"experts/{i}"):
            x = jax.lax.fori_loop(first, ends[i], one, x)
        first = ends[i]
    return x


def gated(
    config: Config, p: Any, x: jax.Array, cut: float | None = None, dense: Any = dense
) -> jax.Array:
    """down(gate(x) * up(x)), or down(act(up(x))) where there is no gate. Gates come in as how far
    they are above their mean and `cut` deviations, where it is given."""
    if "gate_up" in p:
        both = dense(p["gate_up"], x, "gate_up")
        if config.get("gates_alternate"):
            gate, up = both[..., 0::2], both[..., 1::2]
        else:
            gate, up = jnp.split(both, 2, axis=-1)
    elif "gate" in p:
        gate, up = dense(p["gate"], x, "gate"), dense(p["up"], x, "up")
    else:
        act = partial(_xielu, p["curve"]) if "curve" in p else ACTIVATIONS[config.activation]
        return dense(p["down"], act(dense(p["up"], x, "up")), "down")
    if cut is not None:
        least = gate.mean(axis=-1, keepdims=True) + cut * gate.std(axis=-1, keepdims=True)
        gate = jax.nn.relu(gate - least)
    return dense(p["down"], GATES[config.activation](gate, up), "down")
