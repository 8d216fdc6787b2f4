"""The built-in encoder at any size, with random weights and tokens."""

import math
from functools import partial
from typing import Any

import numpy as np

from jq.frontends.model import Batch, Model
from jq.models._tree import nest, spec
from jq.models.zoo.minilm import INPUTS, forward


def build_random(
    batch: int = 1,
    sequence: int = 16,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    vocabulary: int = 100,
    seed: int = 0,
) -> Model:
    """The same function at any size with random weights and tokens: needs no package."""
    flat = random_parameters(
        layers=layers, hidden=hidden, vocabulary=vocabulary, positions=sequence, seed=seed
    )

    def tokens(first: int) -> list[Batch]:
        rng = np.random.default_rng((seed, first))
        length = rng.integers(1, sequence + 1, (8, batch, 1))
        mask = (np.arange(sequence) < length).astype(np.int32)
        ids = rng.integers(1, vocabulary, mask.shape, np.int32) * mask
        return list(zip(ids, mask, strict=True))

    return Model(
        fn=partial(forward, heads=heads),
        params=nest(flat),
        example_inputs=(spec((batch, sequence), np.int32),) * 2,
        calibration=lambda: tokens(1),
        evaluation=lambda: tokens(2),
        name="minilm_random",
        input_names=INPUTS,
    )


def random_parameters(
    *, layers: int, hidden: int, vocabulary: int, positions: int, seed: int
) -> dict[str, Any]:
    """Parameters of a smaller encoder, in the flat names of `from_checkpoint`'s result."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32)

    def norm(path: str) -> dict[str, np.ndarray]:
        scale = 1 + 0.1 * rng.standard_normal(hidden)
        bias = 0.1 * rng.standard_normal(hidden)
        return {f"{path}/scale": scale.astype(np.float32), f"{path}/bias": bias.astype(np.float32)}

    rows = {"word": vocabulary, "position": positions, "token_type": 2}
    flat = {f"embeddings/{name}/embedding": normal(hidden, n).T.copy() for name, n in rows.items()}
    flat |= norm("embeddings/norm")
    for i in range(layers):
        at = f"encoder/layer{i}"
        for name in ("query", "key", "value", "output"):
            flat[f"{at}/attention/{name}/kernel"] = normal(hidden, hidden)
            flat[f"{at}/attention/{name}/bias"] = 0.1 * normal(1, hidden)[0]
        flat |= norm(f"{at}/attention/norm") | norm(f"{at}/mlp/norm")
        for name, shape in {"up": (hidden, 4 * hidden), "down": (4 * hidden, hidden)}.items():
            flat[f"{at}/mlp/{name}/kernel"] = normal(*shape)
            flat[f"{at}/mlp/{name}/bias"] = 0.1 * normal(1, shape[1])[0]
    return flat
