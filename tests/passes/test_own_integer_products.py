"""Products of integers that a model computes itself, and reads as integers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq

RNG = np.random.default_rng(0)
STATIC = ["int8-static", "int8-static-integer-only"]


def product(x: Any, w: Any) -> jax.Array:
    return jax.lax.dot(x, w, preferred_element_type=jnp.int32)


@pytest.mark.parametrize("pipeline", STATIC)
@pytest.mark.parametrize("terms", [64, 2048])
def test_sums_are_exact(terms: int, pipeline: str) -> None:
    """Float32 holds the sums of 64 products, and not those of 2,048."""
    x = RNG.integers(-128, 128, (4, terms)).astype(np.int8)
    model = jq.Model(lambda p, x: product(x, x.T), {}, (x,), calibration=[(x,)])
    found = jq.compile(model, pipeline)(x)
    np.testing.assert_array_equal(found, x.astype(np.int32) @ x.T.astype(np.int32))


@pytest.mark.parametrize("pipeline", ["int8-static", "int4-weight-only"])
def test_layers_around_one_are_quantized(pipeline: str) -> None:
    """Recovery asks for gradients, which an integer product has not."""
    params = {
        "first": (RNG.standard_normal((64, 2048)) / 8).astype(np.float32),
        "codes": RNG.integers(-127, 128, (2048, 32)).astype(np.int8),
        "bias": RNG.integers(-5000, 5000, 32).astype(np.int32),
        "last": (RNG.standard_normal((32, 64)) / 6).astype(np.float32),
    }

    def network(p: Any, x: jax.Array) -> jax.Array:
        codes = jnp.clip(jnp.round(x @ p["first"] / 0.03), -128, 127).astype(jnp.int8)
        sums = product(codes, p["codes"]) + p["bias"]
        return jax.nn.relu(sums.astype(jnp.float32) / 30_000) @ p["last"]

    x = RNG.standard_normal((8, 64)).astype(np.float32)
    model = jq.Model(network, params, (x,), calibration=[(x,)] * 4)
    found, wanted = jq.compile(model, pipeline)(x), network(params, x)
    assert np.linalg.norm(found - wanted) < 0.2 * np.linalg.norm(wanted)
