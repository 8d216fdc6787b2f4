"""Products by themselves: f32[M, K] x f32[K, N], several of different data in one program."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from jq.frontends.model import Batch, Model


def product(m: int, k: int, n: int, copies: int) -> Model:
    rng = np.random.default_rng((m, k, n))
    scale = np.float32(1 / math.sqrt(k))
    weights = {
        f"product{i}": {"kernel": scale * rng.standard_normal((k, n), np.float32)}
        for i in range(copies)
    }

    def apply(params: Any, *inputs: jax.Array) -> Any:
        return tuple(x @ w["kernel"] for x, w in zip(inputs, params.values(), strict=True))

    def draw(seed: int) -> Batch:
        rng = np.random.default_rng(seed)
        return tuple(rng.standard_normal((m, k), np.float32) for _ in range(copies))

    return Model(
        fn=apply,
        params=weights,
        example_inputs=draw(0),
        calibration=[draw(i) for i in (1, 2)],
        evaluation=[draw(i) for i in (3, 4)],
        name="product",
    )
