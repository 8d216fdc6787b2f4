"""A fixed sample of layers and functions; `scripts/suite.py layers` runs all of them."""

from __future__ import annotations

from functools import partial

import pytest

MODULES = ("nnx", "linen", "equinox", "keras", "functions")
STRIDE = {"float": 24, "int8-dynamic": 40}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_layer_is_a_case_or_has_a_reason(module, child):
    from suites import layers

    assert child.call(layers.missing, module) == []


@pytest.mark.parametrize("pipeline", STRIDE)
def test_a_sample_of_layers_is_right(pipeline, child, judged):
    from suites import layers
    from suites.outcome import RIGHT

    chosen = sorted(child.call(layers.names, MODULES))[:: STRIDE[pipeline]]
    found = judged(partial(layers.judge, pipeline=pipeline), chosen)
    assert len(found) == len(chosen) >= 5
    assert [one for one in found if one.verdict != RIGHT] == []


def test_noise_beyond_rounding_is_seen():
    """Half of the bound's own errors are let through, twice as many are not."""
    import numpy as np
    from suites import noise
    from suites.program import numbers

    w, x = numbers(64, 32), numbers(64, 64)
    (limit,) = noise.power(lambda w, x: x @ w, w, (x,), noise.STEPS["int8-dynamic"])
    step = np.abs(w).max() / 127
    for factor, within in ((1, True), (4, False)):
        coarse = np.round(w / (factor * step)) * factor * step
        assert (noise.difference_power(x @ coarse, x @ w) <= limit) == within


def test_noise_follows_loops_of_every_jax():
    """Noise of a rounded weight grows with the steps that read it; scanned values have it."""
    import jax
    import numpy as np
    from suites import noise
    from suites.program import numbers

    def loop(w, c, xs):
        def step(carry, x):
            carry = carry @ w + x
            return carry, (carry[0], jax.lax.scan(lambda a, r: (a + r @ w, a), x, carry)[1])

        return jax.lax.scan(step, c, xs, reverse=True)

    w, c, xs = numbers(8, 8) / 8, numbers(3, 8), numbers(5, 3, 8)
    run = noise.Errors(np.zeros(noise.SIGNS, np.float32))
    graph = jax.make_jaxpr(loop)(w, c, xs)
    found = noise._evaluate(graph.jaxpr, graph.consts, [w, c, xs], run, None)
    for ours, theirs in zip(found, jax.tree.leaves(loop(w, c, xs)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert all(power > 0 for power in noise.power(loop, w, (c, xs), noise.STEPS["int8-dynamic"]))
