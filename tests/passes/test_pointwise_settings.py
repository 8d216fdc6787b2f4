"""Settings for convolutions, or for products, mean the ops that the model has."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import jq

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("told", "quantized"),
    [
        ({"settings": {"op_types": ["convolution"]}}, True),
        ({"settings": {"op_types": ["dot_general"]}}, False),
        ({"rules": ["convolution: float"]}, False),
        ({"rules": ["*: weights.format=mxint8"]}, True),
    ],
)
def test_a_convolution_of_one_pixel(told: dict[str, Any], quantized: bool) -> None:
    def network(p: Any, x: jax.Array) -> jax.Array:
        order = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=order)

    params = {"w": RNG.standard_normal((1, 1, 32, 24)).astype(np.float32)}
    x = RNG.standard_normal((1, 3, 3, 32)).astype(np.float32)
    found = jq.compile(jq.Model(network, params, (x,)), "mxint8", **told)(x)
    error = np.abs(found - network(params, x)).max()
    assert (error > 1e-3) == quantized
