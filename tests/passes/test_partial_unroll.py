"""Rows that a loop writes at its counter, and at places that differ in other axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq

X = np.arange(1, 17, dtype=np.float32)
PLACES = np.random.default_rng(0).integers(0, 16, 16).astype(np.int32)


def written(into, row, *places):
    row = jnp.broadcast_to(row, (1, 1))
    return jax.lax.dynamic_update_slice(into, row, places, allow_negative_indices=False)


# What comes after the counter and two tensors [16, 16] in one step.
STEPS = {
    "given": lambda x, at, i, a, b: (written(a, x[i], i, at[i]), b),
    "backwards": lambda x, at, i, a, b: (written(a, x[i], i, 15 - i), b),
    "the same": lambda x, at, i, a, b: (written(a, x[i], i, at[0]), b),
    "in turns": lambda x, at, i, a, b: (written(b, x[i], i, 3), written(a, x[i], i, 5)),
    "one at its counter": lambda x, at, i, a, b: (written(b, x[i], i, 3), written(a, x[i], 7, 3)),
}


@pytest.mark.parametrize("step", STEPS)
def test_rows_of_several_iterations(step):
    def fn(_, x, at):
        def body(carry):
            i, a, b = carry
            return i + 1, *STEPS[step](x, at, i, a, b)

        start = jnp.int32(0), jnp.zeros((16, 16)), jnp.ones((16, 16))
        return jax.lax.while_loop(lambda carry: carry[0] < 16, body, start)[1:]

    ours = jq.compile(jq.Model(fn, {}, (X, PLACES)), "float")(X, PLACES)
    for got, want in zip(ours, jax.jit(fn)({}, X, PLACES), strict=True):
        np.testing.assert_array_equal(got, want)
