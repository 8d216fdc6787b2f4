"""Integer-only programs whose scales are far apart: masks, and weights that are nothing beside
their bias. Oracles are a mask of a usual size, and the model in float64."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jq
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
W = RNG.normal(size=(16, 16)).astype(np.float32)
X = RNG.normal(size=(4, 16)).astype(np.float32)
INTEGER = {"integer_only": True, "placement": "early"}


def by_integers(fn, params) -> np.ndarray:
    rng = np.random.default_rng(1)
    batches = [(rng.normal(size=X.shape).astype(np.float32),) for _ in range(3)]
    model = jq.Model(fn, params, (X,), calibration=batches, name="far")
    levels = jq.rewrite(model, pipeline="int8-static", settings=INTEGER)
    return np.asarray(evaluated(levels["integer"], X)[0])


def masked(least: float, way: str) -> np.ndarray:
    hidden = np.arange(16) >= 8 if way == "columns" else np.arange(16) > 3 * np.arange(4)[:, None]
    mask = np.where(hidden, least, 0).astype(np.float32)

    def fn(p, x):
        scores = x @ p["w"] + mask
        return jax.nn.softmax(scores + mask / 4 if way == "twice" else scores)

    y = by_integers(fn, {"w": W})
    assert (y[np.broadcast_to(hidden, y.shape)] == 0).all()
    return y


@pytest.mark.parametrize("way", ["columns", "rows", "twice"])
def test_a_mask_of_any_size_does_what_a_small_one_does(way: str) -> None:
    small = masked(-100, way)
    for least in (np.finfo(np.float32).min / 2, -1e30, -1e9):
        np.testing.assert_allclose(masked(least, way), small, rtol=0, atol=1 / 255)


def test_weights_that_are_nothing_beside_their_bias() -> None:
    """Such columns give the bias, to half a step of the result."""
    for small in (1e-8, 1e-20, 1e-30):
        factor = np.where(np.arange(16) % 3 == 1, small, 1).astype(np.float32)
        params = {"w": W * factor, "b": np.full(16, 5, np.float32)}
        y = by_integers(lambda p, x: x @ p["w"] + p["b"], params)
        step = np.diff(np.unique(y)).min()
        assert np.abs(y[:, factor < 1] - 5).max() <= step / 2 + 1e-6
