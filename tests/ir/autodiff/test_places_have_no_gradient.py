"""Choices by place (`argmax`, `top_k`, `argsort`) leave the rest its gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.ir.autodiff.evaluate import run
from jq.planning.moments.collect import Wanted, sensitivity

RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 8, 8)).astype(np.float32)
R = RNG.standard_normal((8, 4)).astype(np.float32)
X = RNG.standard_normal((5, 8)).astype(np.float32)


def first(p, x):
    return jnp.argmax(x @ p["r"], -1)


def largest(p, x):
    return jax.lax.top_k(x @ p["r"], 2)[1][:, 0]


def last(p, x):
    return jnp.argsort(x @ p["r"], -1)[:, -1]


@pytest.mark.parametrize("choose", [first, largest, last])
def test_experts_chosen_by_place(choose, caplog):
    """A mixture of experts with one expert for each token."""

    def fn(p, x):
        weights = jnp.take(p["w"], choose(p, x), axis=0, mode="clip")
        return jnp.einsum("bi,bij->bj", x, weights) + x @ p["w"][0]

    params = {"w": W, "r": R}
    program = jq.trace(jq.Model(fn, params, (X,))).program
    named = {op.attributes["jq.name"].value: op for op in program.body.operations
             if op.operation.name == "stablehlo.dot_general"}  # fmt: skip

    def outputs(x):
        weights = [jnp.asarray(w) for w in program.weights.values()]
        return run(program, [x], weights, lambda _, value: value)[0]

    np.testing.assert_allclose(outputs(X), fn(params, X), rtol=1e-5, atol=1e-5)
    got = jax.grad(lambda x: outputs(x).sum())(jnp.asarray(X))
    want = jax.grad(lambda x: fn(params, x).sum())(jnp.asarray(X))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert sensitivity(program, [Wanted(name, 0, (1,)) for name in named]) is not None
    assert "gradient" not in caplog.text
