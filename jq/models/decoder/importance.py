"""What the products of a decoder are multiplied by, on a text: the importance of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.models.decoder.load import Decoder
from jq.models.decoder.network import TAPS, step


def importance_of(
    decoder: Decoder,
    pieces: Sequence[Sequence[int]],
    progress: Callable[[float], None] = lambda share: None,
) -> dict[str, np.ndarray]:
    """The mean square of every input of every product, over pieces of text of the same length.

    Returns f32 [in] by the path of the weight, such as `layers/0/mlp/down/weight`. The model is
    computed in float32. An expert counts all tokens, as if the router sent each to all.
    """
    config, count = decoder.config, len(pieces[0])
    params = decoder.parameters(count)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)

    def measured(params: Any, tokens: jax.Array) -> dict[str, jax.Array]:
        leaves, _ = jax.tree_util.tree_flatten_with_path(params)
        names = {
            id(leaf): jax.tree_util.keystr(path, simple=True, separator="/")
            for path, leaf in leaves
        }
        empty = jnp.zeros(config.cache_shape(1, count))
        taps: list[tuple[Any, jax.Array]] = []
        reset = TAPS.set(taps)
        try:
            last = jnp.int32(count - 1)
            step(config, params, tokens, jnp.int32(0), [(empty, empty)] * config.layers, last)
        finally:
            TAPS.reset(reset)
        return {names[id(weight)]: mean for weight, mean in taps}

    run = jax.jit(measured)
    total: dict[str, np.ndarray] = {}
    for i, piece in enumerate(pieces):
        for name, mean in run(params, jnp.asarray([piece], jnp.int32)).items():
            total[name] = total.get(name, np.float64(0)) + np.asarray(mean, np.float64)
        progress((i + 1) / len(pieces))
    return {name: (sums / len(pieces)).astype(np.float32) for name, sums in total.items()}
