"""Every method of recovery works on a network with every kind of layer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.reporting.reference import recovery
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4, 4, 8)).astype(np.float32)


def normal(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32)


def network(p, x):
    """Plain, depthwise and grouped convolutions; attention over their pixels; a recurrence."""

    def filtered(x, w, groups):
        numbers = ("NHWC", "HWIO", "NHWC")
        options = {"dimension_numbers": numbers, "feature_group_count": groups}
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", **options)

    for w, groups in zip(p["filters"], (1, 8, 2), strict=True):
        x = x + jax.nn.relu(filtered(x, w, groups))
    x = x.reshape(x.shape[0], -1, 8)
    q, k, v = (x @ w for w in p["heads"])
    x = x + jax.nn.softmax(q @ k.swapaxes(1, 2)) @ v

    def step(h, row):
        h = jnp.tanh(row @ p["in"] + h @ p["again"])
        return h, h

    last, _ = jax.lax.scan(step, jnp.zeros_like(x[:, 0]), x.swapaxes(0, 1))
    return last @ p["out"]


PARAMS = {
    "filters": [normal(3, 3, 8, 8), normal(3, 3, 1, 8), normal(3, 3, 4, 8)],
    "heads": [normal(8, 8) for _ in range(3)],
    "in": normal(8, 8),
    "again": normal(8, 8),
    "out": normal(8, 4),
}
MODEL = jq.Model(network, PARAMS, (X,), calibration=[(X,)])
METHODS = {str(row["name"]) for row in recovery()}


@pytest.mark.parametrize("pipeline", ["int8-static", "int8-weight-only"])
def test_all_methods_work(pipeline):
    """All that a pipeline has, one after the other."""
    methods = sorted(METHODS if pipeline == "int8-static" else {"gptq"})
    settings = {"recovery": methods, "min_elements": 1, "minutes": 0.01}
    program = jq.rewrite(MODEL, pipeline=pipeline, settings=settings)["qdq"]
    (got,), want = evaluated(program, X), network(PARAMS, X)
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    assert error < 0.1, error  # 8 bits on both sides are 1 or 2 %; weights that no longer fit, 100
