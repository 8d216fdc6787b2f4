"""Moments of the output's gradients: against gradients by JAX, and what no output reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.passes.recovery._inputs import uses_in
from jq.planning.moments.outputs import ROUNDS, output_grams

RNG = np.random.default_rng(2)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def found(f, params, data):
    program = trace(Model(f, params, tuple(data[0])))
    wanted = [use.wanted for use in uses_in(program)]
    return {n: m.gram for n, m in output_grams(program, data, wanted, range(len(data))).items()}


@pytest.mark.parametrize("rows", [3, 40])  # fewer than columns, and more
def test_they_are_those_of_gradients(rows):
    """The signs of an output that is one number are all that is drawn, and they square to 1. Of
    Ledoit and Wolf's estimator, by its definition."""
    params = {"a": normal(6, 10), "b": normal(10, 1)}
    data = [[normal(rows, 6)] for _ in range(4)]
    grams = found(lambda p, x: (jnp.tanh(x @ p["a"]) @ p["b"]).sum(), params, data)
    every = []
    for (x,) in data * ROUNDS:
        g = jax.grad(lambda y: (jnp.tanh(y) @ params["b"]).sum())(x @ params["a"])
        g = np.asarray(g, np.float64)
        every.append(g.T @ (g / np.sqrt((g**2).mean(1, keepdims=True))))
    mean = np.mean(every, axis=0)
    alike = np.eye(10) * np.trace(mean) / 10
    noise = sum(((g - mean) ** 2).sum() for g in every) / len(every) ** 2
    share = min(1, noise / ((mean - alike) ** 2).sum())
    assert 0 < share < 0.5
    want = share * alike + (1 - share) * mean
    np.testing.assert_allclose(grams["a"], want, rtol=2e-4, atol=1e-4)


def test_columns_that_no_output_reads_count_least_and_with_no_other():
    data = [[normal(5, 6)] for _ in range(20)]
    (gram,) = found(lambda p, x: (x @ p["a"])[1:, :5], {"a": normal(6, 8)}, data).values()
    np.testing.assert_allclose(gram[5:], np.diag(gram)[5:, None] * np.eye(8)[5:], atol=1e-12)
    assert np.diag(gram)[5:].max() < 0.1 * np.diag(gram)[:5].min()


def test_far_numbers_stay_finite_and_a_convolution_has_its_features():
    kernel, size = normal(3, 3, 2, 4), np.float32(1e25)
    numbers = jax.lax.conv_dimension_numbers((1, 6, 6, 2), kernel.shape, ("NHWC", "HWIO", "NHWC"))

    def f(p, x):
        y = jax.lax.conv_general_dilated(x, p["k"], (1, 1), "SAME", dimension_numbers=numbers)
        return y * size

    (gram,) = found(f, {"k": kernel}, [[normal(1, 6, 6, 2)]] * 2).values()
    assert gram.shape == (4, 4) and np.isfinite(gram).all()
    assert (np.linalg.eigvalsh(gram) > -1e-6 * np.trace(gram)).all()


def test_gradients_of_float16_are_averaged_in_float32():
    """2^-14 is squared: float16 has no such number."""
    params = {"a": np.eye(6, dtype=np.float16), "b": np.full((6, 1), 2.0**-14, np.float16)}
    data = [[np.ones((3, 6), np.float16)]]
    half = found(lambda p, x: x @ p["a"] @ p["b"], params, data)
    single = jax.tree.map(np.float32, (params, data))
    whole = found(lambda p, x: x @ p["a"] @ p["b"], *single)
    assert (whole["a"] > 0).any()
    np.testing.assert_allclose(half["a"], whole["a"], rtol=1e-3)
