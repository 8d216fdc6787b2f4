"""A decode step with more weights than the caches hold.

Its layers are written one after the other, for other exporters have no loop that their quantizers
look into; the new keys and values are results of their own, so that nobody is measured copying
caches.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.model import Batch, Model

MASKED = -1e9


def decode_step(
    layers: int = 4,
    hidden: int = 1536,
    heads: int = 12,
    vocabulary: int = 8192,
    context: int = 128,
    seed: int = 0,
) -> Model:
    """One token of the built-in decoder's blocks: 164 million parameters.

    Inputs are the token i32[1], its position i32[1] and for each layer the keys and values in front
    of it, f32[context, heads, hidden / heads]. Results are logits and the token's own keys and
    values. There is no calibration data: nobody's weights are fitted to any.
    """
    gpt = importlib.import_module("jq.models.zoo.gpt")
    params = gpt.parameters(layers, hidden, vocabulary, context, seed)
    stacked = params.pop("layers")
    params["layers"] = {
        f"layer{i}": jax.tree.map(lambda x, i=i: np.ascontiguousarray(x[i]), stacked)
        for i in range(layers)
    }

    def attention(p: Any, x: Any, seen: Any, keys: Any, values: Any) -> Any:
        y = gpt.rms_norm(p["norm"], x)
        q, k, v = (
            gpt.dense(p[name], y, name).reshape(heads, 1, -1) for name in ("query", "key", "value")
        )
        own = (q * k).sum(axis=2, keepdims=True)
        past = jnp.where(seen, jnp.einsum("hsd,thd->hst", q, keys), MASKED)
        scores = jnp.concatenate([past, own], axis=2) / math.sqrt(hidden // heads)
        weights = jax.nn.softmax(scores, axis=-1)
        found = jnp.einsum("hst,thd->hsd", weights[:, :, :-1], values) + weights[:, :, -1:] * v
        return gpt.dense(p["output"], found.reshape(1, hidden), "output"), k, v

    def step(params: Any, token: jax.Array, position: jax.Array, *caches: jax.Array) -> Any:
        tables = params["embed"]
        x = tables["tokens"]["embedding"][token] * math.sqrt(hidden)
        x = x + tables["positions"]["embedding"][position]
        seen, new = jnp.arange(context) < position, []
        for i in range(layers):
            p = params["layers"][f"layer{i}"]
            with jax.named_scope(f"layer{i}"):
                y, *own = attention(p["attention"], x, seen, *caches[2 * i : 2 * i + 2])
                x = x + y
                x = x + gpt.mlp(p["mlp"], x)
            new += own
        x = gpt.rms_norm(params["norm"], x)
        return x @ tables["tokens"]["embedding"].T, *new

    def steps(count: int, seed: int) -> Iterator[Batch]:
        """Sequences of 16 tokens each, through the float model."""
        rng = np.random.default_rng(seed)
        chance = 1 / np.arange(1, vocabulary + 1)
        function, held = jax.jit(step), jax.device_put(params)
        for _ in range(count // 16):
            caches = [np.zeros(cache.shape, np.float32) for _ in range(2 * layers)]
            for position in range(16):
                token = rng.choice(vocabulary, 1, p=chance / chance.sum()).astype(np.int32)
                batch = (token, np.array([position], np.int32), *[c.copy() for c in caches])
                yield batch
                for c, row in zip(caches, function(held, *batch)[1:], strict=True):
                    c[position] = np.asarray(row)[:, 0]

    cache = jax.ShapeDtypeStruct((context, heads, hidden // heads), np.float32)
    scalar = jax.ShapeDtypeStruct((1,), np.int32)
    return Model(
        fn=step,
        params=params,
        example_inputs=(scalar, scalar, *[cache] * (2 * layers)),
        evaluation=lambda: list(steps(32, seed + 2)),
        name="gpt-decode",
    )
