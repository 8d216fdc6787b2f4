"""A mixer as data: its name, its function, the state it keeps and the tensors it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from jq.base.errors import UserError
from jq.base.registry import register
from jq.language.decoder.config import Config, Shape
from jq.language.decoder.products import Place, State, cut, f32, jax, jnp


@dataclass(frozen=True)
class Mixer:
    """Known because it is made.

    Attributes:
        mix: what it makes of x [batch, n, hidden] (the layer is the second argument), and its state
            afterwards.
        states: shapes of its state for a batch and a capacity; those that grow with the capacity
            have it as their second size, and the type of the cache."""

    registry: ClassVar[dict[str, Mixer]] = {}

    name: str  # also of the node of a layer's tree that holds its tensors
    mix: Callable[[Config, int, Any, jax.Array, Place, State], tuple[jax.Array, State]]
    states: Callable[[Config, int, int], tuple[Shape, ...]]
    shapes: Callable[[Config, Any], dict[str, Shape]]  # of the tensors that it needs, by name
    grows: bool = False  # the state holds every token, so that going back is to read less of it

    def __post_init__(self) -> None:
        register(Mixer.registry, "mixer", self.name, self)


def updated(old: jax.Array, new: jax.Array, position: jax.Array) -> jax.Array:
    """A cache [batch, capacity, ...] with what is new from a position on, or from each one's."""
    new = new.astype(old.dtype)
    rest = (0,) * (old.ndim - 2)
    if position.ndim == 0:
        return jax.lax.dynamic_update_slice(old, new, (0, position, *rest))
    for i, first in enumerate(position):
        old = jax.lax.dynamic_update_slice(old, new[i : i + 1], (i, first, *rest))
    return old


def rows_of(table: jax.Array, position: jax.Array, count: int) -> jax.Array:
    """`count` rows of a table from a position on, or from the position of each sequence."""
    if position.ndim == 0:
        return cut(table, position, count)
    return jnp.stack([cut(table, first, count) for first in position])


def begun(state: jax.Array, place: Place) -> jax.Array:
    """A state [batch, ...] that does not grow; zeros where the sequence begins here."""
    position = place.position.reshape(*place.position.shape, *(1,) * (state.ndim - 1))
    return jnp.where(position == 0, 0.0, state)


def present(count: int, place: Place) -> jax.Array | None:
    """1.0 for each of `count` tokens that is there and 0.0 for padding, f32[count] or
    f32[batch, count]; None where all are there."""
    return None if place.count is None else f32(jnp.arange(count) < place.count[..., None])


def rates(config: Config, p: Any) -> jax.Array:
    """Rates at which heads forget, f32[heads], below 0; files of Hugging Face hold logarithms."""
    found = f32(p["decay"]["weight"]).reshape(-1)
    return found if config.get("plain_rates") else -jnp.exp(found)


def faded(decay: jax.Array, state: jax.Array) -> tuple[jax.Array, ...]:
    """Factors by which each token has faded at each later one [batch, heads, n, n], the state at
    each token, and each token at the end [batch, n, heads, 1], of logarithms f32[batch, n, heads]
    of one token each; and the state at the end."""
    total = jnp.cumsum(decay, axis=1).swapaxes(1, 2)
    gap = total[..., :, None] - total[..., None, :]
    order = jnp.arange(decay.shape[1])
    between = jnp.exp(jnp.where(order[:, None] >= order, gap, -jnp.inf))
    since = jnp.exp(total).swapaxes(1, 2)[..., None]
    until = jnp.exp(total[..., -1:] - total).swapaxes(1, 2)[..., None]
    return between, since, until, jnp.exp(total[..., -1])[..., None, None] * state


def grouped(heads: int, groups: int) -> None:
    """Raises `UserError` where heads cannot share what is of a group."""
    if groups < 1 or heads % groups:
        raise UserError(f"{heads} heads do not share {groups} groups")


def convolved(p: Any, x: jax.Array, state: jax.Array, place: Place) -> tuple[jax.Array, jax.Array]:
    """Each channel of x [batch, n, channels] with its last tokens, by weights [channels, width];
    and the `width - 1` tokens [batch, width - 1, channels] that the next one needs."""
    count, before = x.shape[1], state.shape[1]
    whole = jnp.concatenate([begun(state, place), x], axis=1)
    weight = f32(p["weight"]).reshape(x.shape[-1], before + 1)
    y = sum(whole[:, i : i + count] * weight[:, i] for i in range(before + 1))
    y = y + p["bias"] if "bias" in p else y
    if place.count is None:
        return y, whole[:, count:]
    if place.count.ndim == 0:
        return y, cut(whole, place.count, before, axis=1)
    kept = [cut(whole[i : i + 1], at, before, axis=1) for i, at in enumerate(place.count)]
    return y, jnp.concatenate(kept)
