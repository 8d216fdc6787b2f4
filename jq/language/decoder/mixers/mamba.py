"""State-space layers (Dao and Gu 2024): a matrix of each head forgets at the head's own rate, which
a token sets, and takes in the token.

    h = exp(dt a) h + dt x b^T;  y = h c + d x

Tokens of one call are taken together, each by those before it in a triangle of coefficients.
"""

from __future__ import annotations

from typing import Any

from jq.language.decoder.config import Config, Shape
from jq.language.decoder.lazy import jax, jnp
from jq.language.decoder.mixers._base import Mixer, begun, convolved, faded, grouped, present, rates
from jq.language.decoder.products import Place, State, dense, f32, unit


def mamba(
    config: Config, i: int, p: Any, x: jax.Array, place: Place, state: State
) -> tuple[jax.Array, State]:
    """x [batch, n, hidden] by heads with a matrix each; the state is the last tokens of the
    convolution and the matrices [batch, heads, head, size]."""
    batch, count, _ = x.shape
    heads, head, groups, size = _sizes(config)
    wide, shared = heads * head, groups * size
    parts = dense(p["input"], x, "input")
    gate, mixed, step = jnp.split(parts, [wide, 2 * wide + 2 * shared], axis=-1)
    mixed, kept = convolved(p["filter"], mixed, state[0], place)
    inner, b, c = jnp.split(jax.nn.silu(mixed), [wide, wide + shared], axis=-1)
    inner = inner.reshape(batch, count, heads, head)
    b, c = (jnp.repeat(y.reshape(batch, count, groups, size), heads // groups, 2) for y in (b, c))
    step = jax.nn.softplus(step + f32(p["step"]["bias"]))
    if (there := present(count, place)) is not None:
        step = step * there[..., None]
    y, matrix = _taken(inner, b, c, step, step * rates(config, p), begun(state[1], place))
    y = (y + f32(p["skip"]["weight"]).reshape(heads, 1) * inner).reshape(batch, count, wide)
    y = _gated(config, p, y, jax.nn.silu(gate))
    return dense(p["output"], y, "output"), (kept, matrix)


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


def _sizes(config: Config) -> tuple[int, int, int, int]:
    """Heads, width of a head, groups of heads that share b and c, and their width."""
    names = ("mamba_heads", "mamba_head", "mamba_groups", "mamba_size")
    heads, head, groups, size = (config.get(name) for name in names)
    return heads, head, groups, size


def _states(config: Config, batch: int, capacity: int) -> tuple[Shape, ...]:
    heads, head, groups, size = _sizes(config)
    channels = heads * head + 2 * groups * size
    return (batch, config.get("width") - 1, channels), (batch, heads, head, size)


def _shapes(config: Config, p: Any) -> dict[str, Shape]:
    heads, head, groups, size = _sizes(config)
    grouped(heads, groups)
    wide, channels = heads * head, heads * head + 2 * groups * size
    found: dict[str, Shape] = {"input": (wide + channels + heads, config.hidden)}
    found |= {"filter": (channels, config.get("width")), "output": (config.hidden, wide)}
    found |= {"decay": (heads,), "skip": (heads,), "step/bias": (heads,)}
    normed = "inner_norm" in p or config.get("inner_norm")
    return found | ({"inner_norm": (wide,)} if normed else {})


Mixer("mamba", mamba, _states, _shapes)
