"""Approximate selections are computed exactly, as XLA does on a CPU."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

import jq


@pytest.mark.parametrize("options", [{}, {"aggregate_to_topk": False}, {"reduction_dimension": 0}])
def test_approx_top_k(options):
    def fn(_, x):
        return lax.approx_max_k(x, 4, **options), lax.approx_min_k(x, 4, **options)

    # No two are equal: XLA leaves open which of those it puts first.
    x = np.random.default_rng(0).permutation(16 * 200).reshape(16, 200).astype(np.float32)
    ours = jq.compile(jq.Model(fn, {}, (x,)), pipeline="float")(x)
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(jax.jit(fn)({}, x)), strict=True)
    for mine, theirs in pairs:
        np.testing.assert_array_equal(mine, theirs)


def test_nan_has_a_place_in_approx_top_k():
    """That of its sign: beyond infinity. JAX 0.10 itself leaves out zeros of the least numbers."""

    def fn(_, x):
        return lax.approx_max_k(x, 5), lax.approx_min_k(x, 5), lax.approx_max_k(-x, 5)

    x = np.float32([-2.5, 1.5, 3.5, -4, 0.5, np.nan, -0.0, 0.0, np.inf])
    found = jq.compile(jq.Model(fn, {}, (x,)), pipeline="float")(x)
    places = [5, 8, 2, 1, 4], [3, 0, 6, 7, 4], [3, 0, 6, 7, 4]
    for (values, at), y, expected in zip(found, (x, x, -x), places, strict=True):
        np.testing.assert_array_equal(at, expected)
        np.testing.assert_array_equal(values, y[expected])
