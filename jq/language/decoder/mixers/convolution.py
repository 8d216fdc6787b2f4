"""Short convolutions between two gates (Liquid AI 2025): c * convolved(b * x)."""

from __future__ import annotations

from typing import Any

from jq.language.decoder.config import Config, Shape
from jq.language.decoder.lazy import jax, jnp
from jq.language.decoder.mixers._base import Mixer, convolved
from jq.language.decoder.products import Place, State, dense


def convolution(
    config: Config, i: int, p: Any, x: jax.Array, place: Place, state: State
) -> tuple[jax.Array, State]:
    """x [batch, n, hidden] by gates of its own and its last tokens, which are the state."""
    b, c, x = jnp.split(dense(p["input"], x, "input"), 3, axis=-1)
    y, kept = convolved(p["filter"], b * x, state[0], place)
    return dense(p["output"], c * y, "output"), (kept,)


def _states(config: Config, batch: int, capacity: int) -> tuple[Shape, ...]:
    return ((batch, config.get("width") - 1, config.hidden),)


def _shapes(config: Config, p: Any) -> dict[str, Shape]:
    hidden = config.hidden
    return {
        "input": (3 * hidden, hidden),
        "filter": (hidden, config.get("width")),
        "output": (hidden, hidden),
    }


Mixer("convolution", convolution, _states, _shapes)
