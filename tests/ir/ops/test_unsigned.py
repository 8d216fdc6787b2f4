"""Unsigned integers through IREE, against XLA: all values of 8 bits, the ends of wider types."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jq


def functions(_, x, y, floats, bits, words):
    """Readers of an integer's sign, ops that move it, loops and windows."""
    one = jnp.maximum(y, 1)

    def step(carry):
        total, i = carry
        return total * x + 1, i + 50

    return {
        "compare": x < y,
        "ordered": (jnp.maximum(x, y), jnp.minimum(x, y), jnp.clip(x, 3, 100)),
        "divided": (x // one, x % one),
        "to floats": (x.astype(jnp.float32), x.astype(jnp.float16)),
        "to integers": (
            x.astype(jnp.int32),
            x.astype(jnp.uint32),
            x.astype(jnp.int8),
            x.astype(bool),
        ),
        "from": (floats.astype(x.dtype), bits.astype(x.dtype), words.astype(x.dtype)),
        "moved": (x[::-1], jnp.where(bits, x, 7), x + jnp.arange(x.size, dtype=x.dtype)),
        "sorted": jnp.sort(x),
        "sums": (lax.cumsum(x), lax.cumprod(x), lax.cummax(x), x.max(), x.sum(dtype=x.dtype)),
        "product": lax.dot_general(x, y, (((0,), (0,)), ((), ()))),
        "loop": lax.while_loop(lambda c: c[1] < 200, step, (x, jnp.array(3, x.dtype)))[0],
        "itself": x,
    }


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_unsigned_integers_are_those_of_xla(dtype):
    rng, top = np.random.default_rng(0), np.iinfo(dtype).max
    x = np.concatenate([np.arange(256), top - np.arange(256)]).astype(dtype)
    y = rng.permutation(x)
    floats = rng.uniform(0, float(np.float32(top)) * 0.99, x.size).astype(np.float32)
    bits, words = x % 3 == 0, rng.integers(-(2**31), 2**31, x.size, np.int64).astype(np.int32)
    inputs = (x, y, floats, bits, words)
    ours = jq.compile(jq.Model(functions, {}, inputs), pipeline="float")(*inputs)
    theirs = jax.jit(functions)({}, *inputs)
    for name, reference in theirs.items():
        jax.tree.map(
            lambda a, b, name=name: np.testing.assert_array_equal(a, b, err_msg=name),
            ours[name],
            jax.tree.map(np.asarray, reference),
        )
