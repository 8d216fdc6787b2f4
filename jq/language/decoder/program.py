"""A decoder as a `jq.Model`: some tokens at once, a cache of some capacity."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.model import Model
from jq.language.decoder.load import Decoder
from jq.language.decoder.network import step
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
    `last` alone, of the position's shape. `context` is the longest sequence that will be asked for
    (see `Rope`), `cache` the type of keys and values.
    """
    config = decoder.config

    def one(params: Any, tokens: Any, position: Any, last: Any, caches: Any) -> Any:
        return step(config, params, tokens, position, caches, last)

    entry = spec(config.cache_shape(batch, capacity), jnp.dtype(cache))
    scalar = spec((batch,) if apart else (), np.int32)
    caches = [(entry, entry)] * config.layers
    return Model(
        partial(step, config) if every else one,
        separate(decoder.parameters(capacity, context), config),
        (spec((batch, count), np.int32), *([scalar] if every else [scalar, scalar]), caches),
        name=config.architecture,
    )
