"""Two dense layers with random weights: small, and without any extra package.

What `jaxq quickstart` compiles. Half of the 64 inputs of the random samples are ten times as large
as the others, so that formats differ in how close they stay."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.model import Batch, Model

INPUTS, CLASSES, BATCH = 64, 10, 8


def forward(params: Any, x: jax.Array) -> jax.Array:
    """f32[n, 64] -> scores f32[n, 10]."""
    with jax.named_scope("hidden"):
        x = jnp.maximum(x @ params["hidden"]["kernel"] + params["hidden"]["bias"], 0)
    with jax.named_scope("scores"):
        scores: jax.Array = x @ params["scores"]["kernel"] + params["scores"]["bias"]
    return scores


def build(hidden: int = 128, seed: int = 0) -> Model:
    """Args: hidden: width of the hidden layer; seed: of weights and samples."""
    rng = np.random.default_rng(seed)

    def dense(rows: int, columns: int) -> dict[str, np.ndarray]:
        kernel = rng.standard_normal((rows, columns)) / np.sqrt(rows)
        return {"kernel": kernel.astype(np.float32), "bias": np.zeros(columns, np.float32)}

    params = {"hidden": dense(INPUTS, hidden), "scores": dense(hidden, CLASSES)}
    outliers = np.where(np.arange(INPUTS) % 2, 1.0, 10.0)

    def samples(count: int) -> list[Batch]:
        shape = (count, BATCH, INPUTS)
        return [(x,) for x in (rng.standard_normal(shape) * outliers).astype(np.float32)]

    calibration, evaluation = samples(8), samples(16)
    return Model(
        forward,
        params,
        calibration[0],
        calibration=calibration,
        evaluation=evaluation,
        name="mlp",
        input_names=("x",),
    )
