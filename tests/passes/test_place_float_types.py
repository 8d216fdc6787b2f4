"""Float types beside integers in one model."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
P = {n: {"kernel": RNG.standard_normal((32, 32)).astype(np.float32)} for n in "abcd"}
X = RNG.standard_normal((4, 32)).astype(np.float32)
RULES = ["a/*: bfloat16", "b/*: float16", "c/*: float"]


def forward(p, x):
    for name in "abcd":
        x = x @ p[name]["kernel"] / 6
    return x


def test_each_op_has_the_type_of_its_rule():
    model = jq.Model(forward, P, (X,))
    assert [op.float_type for op in jq.plan(model, rules=RULES).ops] == [
        "bfloat16",
        "float16",
        "",
        "",
    ]
    program = jq.rewrite(model, rules=RULES)["integer"]
    lines = [s for s in program.text().splitlines() if "stablehlo.dot_general" in s]
    kinds = [s.rpartition(" : ")[2] for s in lines]
    for kind, element in zip(kinds, ("bf16", "f16", "f32", "i8"), strict=True):
        assert kind.count(f"x{element}>") >= 2, kind
    assert np.allclose(jq.compile(model, rules=RULES)(X), forward(P, X), atol=0.05)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_operands_are_rounded_and_sums_are_not(name):
    w = P["a"]["kernel"]
    model = jq.Model(lambda p, x: x @ p["w"], {"w": w}, (X,))
    (got,) = evaluated(jq.rewrite(model, rules=[f"w: {name}"])["integer"], X)
    rounded = [v.astype(jnp.dtype(name)).astype(np.float64) for v in (X, w)]
    assert np.allclose(got, rounded[0] @ rounded[1], rtol=1e-5, atol=1e-5)
    assert not np.allclose(got, X @ w, rtol=1e-5, atol=1e-5)


def test_nothing_happens_without_a_rule():
    text = jq.rewrite(jq.Model(forward, P, (X,)), rules=["a/*: float"])["integer"].text()
    assert "bf16" not in text and "f16>" not in text
