"""Functions that JAX 0.11 and 0.12 added, and types of elements that no program has."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jq
from jq.base.errors import UserError

NEW = {
    "log2": (lax, lambda x: lax.log2(x)),
    "one_minus_square": (lax, lambda x: lax.one_minus_square(x)),
    "minmax": (jnp, lambda x: [jnp.minmax(x), jnp.minmax(x, axis=1)]),
    "top_k": (jnp, lambda x: [jnp.top_k(x, 2), jnp.top_k(x, 3, axis=0)]),
    "erfcinv": (jax.scipy.special, lambda x: jax.scipy.special.erfcinv(x)),
}
THERE = {name: fn for name, (module, fn) in NEW.items() if hasattr(module, name)}
UNKNOWN = ("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")


def test_functions_that_are_new() -> None:
    def fn(_: Any, x: Any) -> Any:
        return {name: made(x) for name, made in THERE.items()}

    x = np.random.default_rng(0).uniform(0.05, 0.95, (5, 7)).astype(np.float32)
    compiled = jq.compile(jq.Model(fn, {}, (x,)), pipeline="float")
    found, right = jax.tree.leaves(compiled(x)), jax.tree.leaves(jax.jit(fn)({}, x))
    assert len(found) == len(right)
    for ours, theirs in zip(found, right, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=16 * 2**-23, atol=4 * 2**-23)


@pytest.mark.parametrize("name", UNKNOWN)
def test_types_that_are_refused(name: str) -> None:
    kind = getattr(jnp, name)
    x = np.ones((2, 3), np.float32)
    cases = {
        "an input": (lambda _, x: x.astype(jnp.float32), {}, x.astype(kind)),
        "a weight": (lambda p, x: x + p.astype(jnp.float32), x.astype(kind), x),
        "inside": (lambda _, x: x.astype(kind).astype(jnp.float32), {}, x),
    }
    for fn, params, given in cases.values():
        with pytest.raises(UserError, match="type .* is not supported; cast it in") as info:
            jq.trace(jq.Model(fn, params, (given,)))
        assert name.split("_")[1].upper() in str(info.value).upper()
