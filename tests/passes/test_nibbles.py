"""Integers of 4 and 2 bits through IREE at odd sizes, against XLA; where that is wrong, NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jq
from jq.passes.iree_mends.nibbles import PlainNibbles
from tests.support.texts import load, run_iree

RNG = np.random.default_rng(0)


def functions(params, x, y, floats, words):
    """Ops that compute, that read the sign or single bits, that move, loops and conversions."""
    kind, zero = x.dtype, np.zeros((), x.dtype)
    known = jnp.asarray(params["known"])
    one = jnp.where(y == 0, jnp.ones_like(y), y)
    return {
        "computed": (x + y, x - y, x * y, lax.div(x, one), lax.rem(x, one), x + known[:5]),
        "ordered": (x < y, jnp.maximum(x, y), lax.min(x, y), lax.reduce(x, zero, lax.max, (1,))),
        "bits": (~x, x ^ y, lax.clz(x)),
        "shifted": (
            lax.shift_left(x, y),
            lax.shift_right_logical(x, y),
            lax.shift_right_arithmetic(x, y),
        ),
        "summed": (
            lax.reduce(x, zero, lax.add, (0,)),
            lax.reduce(x, zero, lambda a, b: a * b + b, (1,)),
        ),
        "moved": (x, x.T, x[::-1, 1:], x[jnp.array([2, 0])], jnp.concatenate([x, y])[::2]),
        "from": (floats.astype(kind), words.astype(kind), lax.iota(kind, 21)),
        "to": [x.astype(t) for t in (jnp.float32, bool, jnp.int8, jnp.uint8)],
        "loop": lax.fori_loop(0, 5, lambda i, s: s * y + x, x),
        "weight": known.astype(jnp.float32),
    }


@pytest.mark.parametrize("dtype", ["int4", "uint4", "uint2"])
def test_narrow_integers_are_those_of_xla(dtype):
    def drawn(*shape):
        return np.asarray(jnp.asarray(RNG.integers(0, 16, shape, np.int8)).astype(dtype))

    floats = np.array([3.7, -3.7, 9, -9, 300, np.nan, np.inf, -np.inf, 15.9], np.float32)
    words = RNG.integers(-99, 99, 7).astype(np.int32)
    inputs = (drawn(3, 5), drawn(3, 5), floats, words)
    params = {"known": drawn(1301)}
    ours = jq.compile(jq.Model(functions, params, inputs), "float")(*inputs)
    for name, want in jax.jit(functions)(params, *inputs).items():
        for a, b in zip(jax.tree.leaves(ours[name]), jax.tree.leaves(want), strict=True):
            assert a.dtype == b.dtype, name
            np.testing.assert_array_equal(a, np.asarray(b), err_msg=name)


def test_sorted_and_counted():
    x = np.asarray(jnp.asarray(RNG.integers(0, 16, 21, np.int8)).astype(jnp.int4))
    model = jq.Model(lambda _, x: (jnp.sort(x), lax.population_count(x)), {}, (x,))
    ordered, counts = jq.compile(model, "float")(x)
    numbers = x.astype(np.int8)
    np.testing.assert_array_equal(ordered.astype(np.int8), np.sort(numbers))
    np.testing.assert_array_equal(counts.astype(np.int8), np.bitwise_count(numbers.view("u1") & 15))


CASTS = """(%x: tensor<3xi8>, %w: tensor<3xi32>)
    -> (tensor<3x2xi4>, tensor<3xi8>, tensor<3x16xui2>, tensor<3xi32>) {
  %0 = stablehlo.bitcast_convert %x : (tensor<3xi8>) -> tensor<3x2xi4>
  %1 = stablehlo.bitcast_convert %0 : (tensor<3x2xi4>) -> tensor<3xi8>
  %2 = stablehlo.bitcast_convert %w : (tensor<3xi32>) -> tensor<3x16xui2>
  %3 = stablehlo.bitcast_convert %2 : (tensor<3x16xui2>) -> tensor<3xi32>
  return %0, %1, %2, %3 : tensor<3x2xi4>, tensor<3xi8>, tensor<3x16xui2>, tensor<3xi32> }"""


def test_the_bits_of_wider_integers():
    x, w = np.array([0x7F, -1, 0x21], np.int8), np.array([-2, 0x1B, 2**31 - 1], np.int32)
    program = load(CASTS)
    PlainNibbles().run(program, None)
    nibbles, bytes_, pairs, words = run_iree(program, x, w)
    want = (x.view(np.uint8)[:, None] >> np.array([0, 4], np.uint8)) & 15
    np.testing.assert_array_equal(nibbles.astype(np.int8).view(np.uint8) & 15, want)
    np.testing.assert_array_equal(bytes_, x)
    np.testing.assert_array_equal(pairs.astype(np.int8), (w[:, None] >> np.arange(0, 32, 2)) & 3)
    np.testing.assert_array_equal(words, w)
