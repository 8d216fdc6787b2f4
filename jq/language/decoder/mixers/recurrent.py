"""Mixers whose state does not grow.

- Short convolutions between two gates (Liquid AI 2025): c * convolved(b * x).
- The gated delta rule (Yang et al. 2024): a matrix of each head forgets, and learns what its key
  gives otherwise than its value: S = exp(g) S;  S = S + k (beta (v - S^T k))^T;  y = S^T q.
- State-space layers (Dao and Gu 2024): a matrix of each head forgets at the head's own rate, which
  a token sets, and takes in the token: h = exp(dt a) h + dt x b^T;  y = h c + d x.

Tokens of one call are taken together, each by those before it in a triangle of coefficients; that
of the delta rule, where what each learns depends on those before, is inverted by halves."""

from __future__ import annotations

from typing import Any

from jq.language.decoder.config import Config, Shape
from jq.language.decoder.mixers._base import Mixer, begun, convolved, faded, grouped, present, rates
from jq.language.decoder.products import ACTIVATIONS, Place, State, dense, f32, jax, jnp, unit


def convolution(
    config: Config, i: int, p: Any, x: jax.Array, place: Place, state: State
) -> tuple[jax.Array, State]:
    """x [batch, n, hidden] by gates of its own and its last tokens, which are the state."""
    b, c, x = jnp.split(dense(p["input"], x, "input"), 3, axis=-1)
    y, kept = convolved(p["filter"], b * x, state[0], place)
    return dense(p["output"], c * y, "output"), (kept,)


Mixer(
    "convolution",
    convolution,
    lambda config, batch, capacity: ((batch, config.get("width") - 1, config.hidden),),
    lambda config, p: {
        "input": (3 * config.hidden, config.hidden),
        "filter": (config.hidden, config.get("width")),
        "output": (config.hidden, config.hidden),
    },
)


_EPSILON = 1e-6  # of the length of queries and keys
# Groups of heads that share queries and keys, heads, width of a key and of a value.
_DELTA = "delta_groups delta_heads delta_key delta_value"
# Heads, width of a head, groups of heads that share b and c, and their width.
_MAMBA = "mamba_heads mamba_head mamba_groups mamba_size"


def delta(
    config: Config, i: int, p: Any, x: jax.Array, place: Place, state: State
) -> tuple[jax.Array, State]:
    """x [batch, n, hidden] by heads with a matrix each; the state is the last tokens of the
    convolution and the matrices [batch, heads, key, value]."""
    batch, count, _ = x.shape
    groups, heads, key, value = config.sizes(_DELTA)
    mixed, gate, beta, decay = _projections(config, p, x)
    mixed, kept = convolved(p["filter"], mixed, state[0], place)
    mixed = ACTIVATIONS[config.activation](mixed)
    q, k, v = jnp.split(mixed, [groups * key, 2 * groups * key], axis=-1)
    tiled = config.get("tiled_heads")
    q, k = (_length_one(y.reshape(batch, count, groups, key), heads, tiled) for y in (q, k))
    v = v.reshape(batch, count, heads, value)
    beta = jax.nn.sigmoid(beta)
    decay = rates(config, p) * jax.nn.softplus(decay + f32(p["step"]["bias"]))
    if (there := present(count, place)) is not None:
        beta, decay = beta * there[..., None], decay * there[..., None]
    y, matrix = _learned(q * key**-0.5, k, v, beta, decay, begun(state[1], place))
    y = unit(y, config.epsilon) * p["inner_norm"]["weight"]
    y = y * jax.nn.silu(gate.reshape(y.shape))
    return dense(p["output"], y.reshape(batch, count, -1), "output"), (kept, matrix)


def _projections(config: Config, p: Any, x: jax.Array) -> tuple[jax.Array, ...]:
    """The input of the convolution [batch, n, channels], the gate, and beta and decay
    [batch, n, heads]. Some files hold all rows of a group of heads together."""
    groups, heads, key, value = config.sizes(_DELTA)
    shared, shape = heads // groups, x.shape[:2]
    if "qkv" in p:
        mixed, gate = dense(p["qkv"], x, "qkv"), dense(p["gate"], x, "gate")
    else:
        y = dense(p["qkvz"], x, "qkvz").reshape(*shape, groups, -1)
        ends = [key, 2 * key, 2 * key + shared * value]
        q, k, v, gate = (t.reshape(*shape, -1) for t in jnp.split(y, ends, axis=-1))
        mixed = jnp.concatenate([q, k, v], axis=-1)
    if "beta" in p:
        return mixed, gate, dense(p["beta"], x, "beta"), dense(p["rate"], x, "rate")
    rates = dense(p["rates"], x, "rates").reshape(*shape, groups, -1)
    beta, rate = (t.reshape(*shape, -1) for t in jnp.split(rates, [shared], axis=-1))
    return mixed, gate, beta, rate


def _length_one(x: jax.Array, heads: int, tiled: bool) -> jax.Array:
    """x [batch, n, groups, key] of length 1, each repeated for neighbouring heads, or `tiled`."""
    x, times = unit(x, _EPSILON / x.shape[-1]) * x.shape[-1] ** -0.5, heads // x.shape[2]
    return jnp.tile(x, (1, 1, times, 1)) if tiled else jnp.repeat(x, times, axis=2)


def _learned(
    q: jax.Array, k: jax.Array, v: jax.Array, beta: jax.Array, decay: jax.Array, state: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Results of the tokens [batch, n, heads, value] and the matrices after them."""
    fade, grown, left, after = faded(decay, state)
    order = jnp.arange(q.shape[1])
    alike = jnp.einsum("bshd,bthd->bhst", k, k) * fade * beta.swapaxes(1, 2)[..., None]
    triangle = jnp.where(order[:, None] > order, alike, 0.0)
    fresh = beta[..., None] * (v - grown * jnp.einsum("bshd,bhdv->bshv", k, state))
    learned = jnp.einsum("bhst,bthv->bshv", _inverse(triangle), fresh)
    read = jnp.einsum("bshd,bthd->bhst", q, k) * fade
    y = grown * jnp.einsum("bshd,bhdv->bshv", q, state)
    y = y + jnp.einsum("bhst,bthv->bshv", read, learned)
    return y, after + jnp.einsum("bthd,bthv->bhdv", k * left, learned)


def _inverse(a: jax.Array) -> jax.Array:
    """Inverses of I + a, a [..., n, n] below the diagonal: of both halves, then what joins them."""
    n = a.shape[-1]
    if n == 1:
        return jnp.ones_like(a)
    if n & (n - 1):
        room = (1 << n.bit_length()) - n
        return _inverse(jnp.pad(a, [(0, 0)] * (a.ndim - 2) + [(0, room)] * 2))[..., :n, :n]
    h = n // 2
    upper, lower = _inverse(jnp.stack([a[..., :h, :h], a[..., h:, h:]]))
    joint = -jnp.einsum("...ij,...jk,...kl->...il", lower, a[..., h:, :h], upper)
    top = jnp.concatenate([upper, jnp.zeros_like(upper)], axis=-1)
    return jnp.concatenate([top, jnp.concatenate([joint, lower], axis=-1)], axis=-2)


def _channels(config: Config) -> int:
    groups, heads, key, value = config.sizes(_DELTA)
    return 2 * groups * key + heads * value


def _delta_states(config: Config, batch: int, capacity: int) -> tuple[Shape, ...]:
    _, heads, key, value = config.sizes(_DELTA)
    return (batch, config.get("width") - 1, _channels(config)), (batch, heads, key, value)


def _delta_shapes(config: Config, p: Any) -> dict[str, Shape]:
    groups, heads, _, value = config.sizes(_DELTA)
    grouped(heads, groups)
    channels, hidden, wide = _channels(config), config.hidden, heads * value
    found: dict[str, Shape] = {"filter": (channels, config.get("width"))}
    found |= {"decay": (heads,), "inner_norm": (value,), "output": (hidden, wide)}
    found |= {"step/bias": (heads,)}
    if "qkv" in p:
        found |= {"qkv": (channels, hidden), "gate": (wide, hidden)}
    else:
        found["qkvz"] = (channels + wide, hidden)
    if "beta" in p:
        return found | {"beta": (heads, hidden), "rate": (heads, hidden)}
    return found | {"rates": (2 * heads, hidden)}


Mixer("delta", delta, _delta_states, _delta_shapes)


def mamba(
    config: Config, i: int, p: Any, x: jax.Array, place: Place, state: State
) -> tuple[jax.Array, State]:
    """x [batch, n, hidden] by heads with a matrix each; the state is the last tokens of the
    convolution and the matrices [batch, heads, head, size]."""
    batch, count, _ = x.shape
    heads, head, groups, size = config.sizes(_MAMBA)
    wide, shared = heads * head, groups * size
    parts = dense(p["input"], x, "input")
    gate, mixed, step = jnp.split(parts, [wide, 2 * wide + 2 * shared], axis=-1)
    mixed, kept = convolved(p["filter"], mixed, state[0], place)
    mixed = ACTIVATIONS[config.activation](mixed)
    inner, b, c = jnp.split(mixed, [wide, wide + shared], axis=-1)
    inner = inner.reshape(batch, count, heads, head)
    b, c = (jnp.repeat(y.reshape(batch, count, groups, size), heads // groups, 2) for y in (b, c))
    step = jax.nn.softplus(step + f32(p["step"]["bias"]))
    if (there := present(count, place)) is not None:
        step = step * there[..., None]
    y, matrix = _taken(inner, b, c, step, step * rates(config, p), begun(state[1], place))
    y = (y + f32(p["skip"]["weight"]).reshape(heads, 1) * inner).reshape(batch, count, wide)
    return dense(p["output"], _gated(config, p, y, jax.nn.silu(gate)), "output"), (kept, matrix)


def _taken(
    x: jax.Array, b: jax.Array, c: jax.Array, step: jax.Array, decay: jax.Array, state: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Results of the tokens [batch, n, heads, head] and the matrices after them."""
    fade, grown, left, after = faded(decay, state)
    x = x * step[..., None]
    y = jnp.einsum("bhst,bthd->bshd", jnp.einsum("bshn,bthn->bhst", c, b) * fade, x)
    y = y + grown * jnp.einsum("bshn,bhdn->bshd", c, state)
    return y, after + jnp.einsum("bthd,bthn->bhdn", x, b * left)


def _gated(config: Config, p: Any, y: jax.Array, gate: jax.Array) -> jax.Array:
    """The gate, and a norm of each group behind it, or in front of it, where there is one."""
    if "inner_norm" not in p:
        return y * gate
    first = config.get("norm_before_gate")
    y = y if first else y * gate
    groups = y.reshape(*y.shape[:2], config.get("mamba_groups"), -1)
    y = unit(groups, config.epsilon).reshape(y.shape) * p["inner_norm"]["weight"].reshape(-1)
    return y * gate if first else y


def _mamba_states(config: Config, batch: int, capacity: int) -> tuple[Shape, ...]:
    heads, head, groups, size = config.sizes(_MAMBA)
    channels = heads * head + 2 * groups * size
    return (batch, config.get("width") - 1, channels), (batch, heads, head, size)


def _mamba_shapes(config: Config, p: Any) -> dict[str, Shape]:
    heads, head, groups, size = config.sizes(_MAMBA)
    grouped(heads, groups)
    wide, channels = heads * head, heads * head + 2 * groups * size
    found: dict[str, Shape] = {"input": (wide + channels + heads, config.hidden)}
    found |= {"filter": (channels, config.get("width")), "output": (config.hidden, wide)}
    found |= {"decay": (heads,), "skip": (heads,), "step/bias": (heads,)}
    normed = "inner_norm" in p or config.get("inner_norm")
    return found | ({"inner_norm": (wide,)} if normed else {})


Mixer("mamba", mamba, _mamba_states, _mamba_shapes)
