"""A decoder as a `jq.Model`: some tokens at once, a cache of some capacity."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.model import Model
from jq.language.decoder.load import Decoder
from jq.language.decoder.network import state_shapes, step
from jq.language.decoder.separate import separate
from jq.models._tree import spec


def decoder_model(
    decoder: Decoder,
    count: int,
    capacity: int,
    *,
    context: int | None = None,
    batch: int = 1,
    cache: str = "float32",
    every: bool = False,
    apart: bool = False,
) -> Model:
    """`count` tokens i32[batch, count] at a position i32[], and caches of `capacity` tokens;
    `apart`: at positions i32[batch], one for each sequence.

    Gives the logits of every token; or, with one more input in front of the caches, those of token
    `last` alone, of the position's shape. Where a state does not grow, an input in front of that
    counts the tokens that are no padding. `context` is the longest sequence that will be asked for
    (see `Rope`), `cache` the type of keys and values.
    """
    config = decoder.config

    states = state_shapes(config, batch, capacity)
    counted = not all(grows for shapes in states for _, grows in shapes)

    def run(params: Any, tokens: Any, position: Any, *given: Any) -> Any:
        *scalars, caches = given
        there = scalars.pop(0) if counted else None
        last = None if every else scalars.pop()
        return step(config, params, tokens, position, caches, last, there)

    caches = [
        tuple(spec(shape, jnp.dtype(cache if grows else np.float32)) for shape, grows in shapes)
        for shapes in states
    ]
    scalar = spec((batch,) if apart else (), np.int32)
    return Model(
        run,
        separate(decoder.parameters(capacity, context), config),
        (spec((batch, count), np.int32), *[scalar] * (1 + counted + (not every)), caches),
        name=config.architecture,
    )
