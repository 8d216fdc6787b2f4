"""Selections of windows, scattered back: gradients of pools, through IREE, as in XLA."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jq

POOLS = [
    ((1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    ((1, 3, 2, 1), (1, 1, 2, 1), "SAME"),
    ((1, 3, 3, 1), (1, 2, 3, 1), ((0, 0), (2, 1), (1, 2), (0, 0))),
]


def gradients(_, x):
    def pooled(x, window, strides, padding, largest):
        start, combine = (-jnp.inf, lax.max) if largest else (jnp.inf, lax.min)
        return (lax.reduce_window(x, start, combine, window, strides, padding) ** 2).sum()

    return [jax.grad(pooled)(x, *pool, largest) for pool in POOLS for largest in (True, False)]


def test_gradients_of_pools():
    """Small integers: sums are exact, and many elements are equal."""
    x = np.random.default_rng(0).integers(-3, 4, (2, 7, 6, 3)).astype(np.float32)
    got = jq.compile(jq.Model(gradients, {}, (x,)), pipeline="float")(x)
    for ours, theirs in zip(got, jax.jit(gradients)({}, x), strict=True):
        np.testing.assert_array_equal(ours, np.asarray(theirs))
