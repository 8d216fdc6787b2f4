"""Stored weights stay stored under factors, updates and flips; the function is the same."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 64)).astype(np.float32)
PLAIN = {
    "w": RNG.standard_normal((64, 48)),
    "rows": RNG.standard_normal(64),
    "columns": RNG.standard_normal(48),
    "a": RNG.standard_normal((64, 4)),
    "b": RNG.standard_normal((4, 48)),
}
PLAIN = {k: v.astype(np.float32) for k, v in PLAIN.items()}
CASES = {
    "number": lambda x, p: x @ (p["w"] * 0.5),
    "negative": lambda x, p: x @ (-2.0 * p["w"]),
    "negated": lambda x, p: x @ -p["w"],
    "negated update": lambda x, p: x @ -(p["w"] + p["a"] @ p["b"]),
    "negated and transposed": lambda x, p: x @ (-p["w"].T * p["columns"][:, None]).T,
    "of what is summed": lambda x, p: x @ (p["w"] * p["rows"][:, None]),
    "of results": lambda x, p: x @ (p["w"] * p["columns"]),
    "flip": lambda x, p: x @ p["w"][::-1, ::-1],
    "update": lambda x, p: x @ (p["w"] + p["a"] @ p["b"]),
    "scaled update": lambda x, p: x @ (p["w"] + 0.25 * (p["a"] @ p["b"])),
    "two updates": lambda x, p: x @ ((p["w"] + p["a"] @ p["b"]) * p["columns"] + p["a"] @ p["b"]),
    "full update": lambda x, p: x @ (p["w"] + jnp.outer(p["rows"], p["columns"])),
    "over": lambda x, p: x @ (p["w"] / p["rows"][:, None] / 4),
    "scaled and transposed": lambda x, p: x @ (p["w"].T * p["columns"][:, None] + 0.5).T,
    "transposed": lambda x, p: jnp.einsum("bk,nk->bn", x, p["w"].T + (p["a"] @ p["b"]).T),
}


def stored(dtype, **options):
    """The weight as `quantize_weights` stores it, and others as they are."""
    plain = jq.Model(lambda p, x: x @ p["w"], {"w": PLAIN["w"]}, (X,))
    return PLAIN | jq.quantize_weights(plain, dtype=dtype, **options).params


@pytest.mark.parametrize("dtype", ["int8", "float4_e2m1fn"])
def test_stays_stored(dtype):
    params = stored(dtype, granularity="per_channel" if dtype == "int8" else "per_block")
    forward = lambda p, x: {name: fn(x, p) for name, fn in CASES.items()}  # noqa: E731
    decoded = params | {"w": params["w"].decode()}
    want = forward(decoded, X)
    program = jq.rewrite(jq.Model(forward, params, (X,)), pipeline="float")["float"]
    for (name, ref), got in zip(sorted(want.items()), evaluated(program, X), strict=True):
        bound = 1e-5 * np.abs(ref).max()
        assert np.abs(got - ref).max() <= bound, name
    assert list(program.encodings) == ["w"]
    # No float array of its size is stored beside it, but for the update that has no factors.
    floats = [n for n, a in program.weights.items() if a.dtype == np.float32 and a.size == 64 * 48]
    assert len(floats) <= 1, floats
    assert program.weights["w:codes"].size <= 64 * 48


def test_the_stored_weight_is_multiplied_in_integers():
    model = jq.Model(lambda p, x: CASES["scaled update"](x, p), stored("int8"), (X,))
    first, *updates = jq.plan(model, pipeline="int8-dynamic", rules=["*update*: float"]).ops
    assert first.decision == "integer" and first.operands[1].stored
    assert len(updates) == 2 and {op.decision for op in updates} == {"float"}


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, p: x @ (p["w"] + jnp.zeros((64, 48))),
        lambda x, p: x @ (p["none"] + p["w"]).T.T,
        lambda x, p: x @ (2.0 * (p["w"] - p["none"]) + p["a"] @ (0 * p["b"])),
        lambda x, p: x @ (p["w"] + p["a"] @ p["never"]),
    ],
    ids=["constant", "weight", "subtracted", "low rank"],
)
def test_zeros_that_are_added_are_left_out(fn):
    """As of an update that was never trained: nothing is multiplied or stored."""
    none = {"none": np.zeros((64, 48), np.float32), "never": np.zeros((4, 48), np.float32)}
    params = stored("int8") | none
    (op,) = jq.plan(jq.Model(lambda p, x: fn(x, p), params, (X,)), pipeline="int8-dynamic").ops
    assert op.decision == "integer" and op.operands[1].stored
    program = jq.rewrite(jq.Model(lambda p, x: fn(x, p), params, (X,)), pipeline="float")["float"]
    assert all(name.startswith("w:") for name in program.weights)
    want = fn(X, params | {"w": params["w"].decode()})
    np.testing.assert_allclose(evaluated(program, X)[0], want, rtol=1e-5, atol=1e-4)


def test_zeros_that_are_multiplied_by_what_may_be_infinite_stay():
    """Infinity times 0 is NaN, which stays visible."""

    def fn(p, x):
        return x[:8] @ (p["w"] + x[:8].T @ p["never"])

    params = stored("int8") | {"never": np.zeros((8, 48), np.float32)}
    x = np.concatenate([X, X])
    program = jq.rewrite(jq.Model(fn, params, (x,)), pipeline="float")["float"]
    damaged = x.copy()
    damaged[0, 0] = np.inf
    assert np.isnan(np.asarray(evaluated(program, damaged)[0])).all()


OF_NOTHING = {
    "scaled": lambda x, p: jnp.einsum("bk,k->bk", x, p["rows"]) @ p["w"],
    "outer": lambda x, p: jnp.einsum("bk,n->nbk", x, p["columns"]),
    "turned": lambda x, p: jnp.einsum("bk,kr->rkb", x, p["a"]),
    "of two activations": lambda x, p: jnp.einsum("bk,bk->kb", x, jnp.tanh(x)),
    "in bfloat16": lambda x, p: jnp.einsum(
        *("bk,k->bk", x.astype("bfloat16"), p["rows"].astype("bfloat16")),
        preferred_element_type=jnp.float32,
    ),
}


@pytest.mark.parametrize("name", OF_NOTHING)
def test_a_product_that_sums_nothing_is_one_of_elements(name):
    """As a matrix, each element of the vector had a scale of its own."""
    model = jq.Model(lambda p, x: OF_NOTHING[name](x, p), PLAIN, (X,))
    program = jq.rewrite(model, pipeline="float")["float"]
    got, want = evaluated(program, X)[0], OF_NOTHING[name](X, PLAIN)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    planned = jq.rewrite(model, pipeline="int8-dynamic")["qdq"]
    assert set(planned.encodings) == ({"w"} if name == "scaled" else set())
