"""Small models with calibration data, for tests of recovery."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.ir import Program
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline, make_plan, prepare
from jq.planning.calibration.run import calibrate
from jq.target.target import load_target

TARGET = load_target("llvm-cpu")
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def mlp(width: int = 32) -> tuple[Model, list[list[np.ndarray]]]:
    """Norm with two outlier channels, two branches that read it, a GELU, and a mask over rows."""

    def f(p: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        normal = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-6)
        n = normal * p["gamma"] + p["beta"]
        h = jax.nn.gelu(n @ p["up"], approximate=False) + jnp.tanh(n @ p["side"])
        y = (h @ p["down"]) * mask[:, :, None]
        return y.sum(1)

    gamma = np.ones(width, np.float32)
    gamma[[3, 7]] = 25
    params = {
        "gamma": gamma,
        "beta": normal(width),
        "up": normal(width, 2 * width),
        "side": normal(width, 2 * width),
        "down": normal(2 * width, width),
    }
    mixing = normal(width, width)
    data = []
    for _ in range(6):
        x = (RNG.standard_normal((4, 8, width)) @ mixing).astype(np.float32)
        mask = (np.arange(8) < RNG.integers(2, 9, (4, 1))).astype(np.float32)
        data.append([x, mask])
    return Model(f, params, tuple(data[0])), data


def context(
    model: Model, pipeline: str, data: Any, settings: dict[str, Any] | None = None
) -> tuple[Program, PassContext]:
    """The prepared program and what passes are given."""
    chosen = load_pipeline(pipeline, {"min_elements": 1, **(settings or {})})
    program = prepare(trace(model), chosen, TARGET)
    static = chosen.settings.activations.mode == "static"
    ranges = calibrate(program, data) if static and data else None
    plan = make_plan(program, chosen, TARGET, ranges)
    return program, PassContext(plan, chosen.settings, TARGET, data)
