"""Sorts: equal elements in their order, NaN in its place, no operand written that others read."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jq
from tests.traps.helpers import mended, raw, trap

RNG = np.random.default_rng(0)
TIED = RNG.integers(0, 6, (3, 44)).astype(np.float32)
SPECIAL = TIED.copy()
SPECIAL[:, ::7] = np.nan
SPECIAL[0, 1:3], SPECIAL[1, 3:5] = (-0.0, 0.0), (np.inf, -np.inf)
SORT = """(%x: tensor<44xf32>, %y: tensor<44xi32>) -> (tensor<44xf32>, tensor<44xi32>) {
  %r:2 = "stablehlo.sort"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>):
      %c = stablehlo.compare LT, %a, %b, ORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }) : (tensor<44xf32>, tensor<44xi32>) -> (tensor<44xf32>, tensor<44xi32>)
  return %r#0, %r#1 : tensor<44xf32>, tensor<44xi32> }"""
NUMBERS = RNG.permutation(44).astype(np.int32)


@trap
def test_order_of_equal_elements():
    got = raw(SORT.replace("ORDER", "FLOAT"), TIED[0], NUMBERS)
    np.testing.assert_array_equal(got[1], NUMBERS[np.argsort(TIED[0], kind="stable")])


def test_equal_elements_keep_their_order():
    got = mended("stable-sorts", SORT.replace("ORDER", "FLOAT"), TIED[0], NUMBERS)
    order = np.argsort(TIED[0], kind="stable")
    np.testing.assert_array_equal(got[0], TIED[0][order])
    np.testing.assert_array_equal(got[1], NUMBERS[order])


def orders(x):
    yield jnp.sort(x)
    yield jnp.argsort(x)
    yield jnp.argsort(x, axis=0, descending=True)
    yield jax.lax.top_k(x, 7)


def of_several(x):
    """By several keys, and with what is moved along."""
    places = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    yield jnp.argmax(x, -1)
    yield jnp.lexsort((x, x[::-1]), axis=-1)
    yield jax.lax.sort((x, x, places), num_keys=1)
    yield jax.lax.sort((x, x[::-1], places), num_keys=2)
    yield jax.lax.sort((-x, x > 1, places % 3), num_keys=1)


GIVEN = {
    "f32": SPECIAL,
    "bf16": SPECIAL.astype(ml_dtypes.bfloat16),
    "f16": SPECIAL.astype(np.float16),
    "i8": RNG.integers(-3, 3, (3, 15)).astype(np.int8),
}


def test_as_jax():
    """In one program, so that they have constants, places and inputs in common."""

    def fn(*given):
        return [list(orders(x)) for x in given], list(of_several(given[0]))

    compiled = jq.compile(jq.Model(lambda p, *x: fn(*x), {}, tuple(GIVEN.values())), "float")
    want, got = jax.jit(fn)(*GIVEN.values()), compiled(*GIVEN.values())
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        np.testing.assert_array_equal(np.asarray(b, np.float32), np.asarray(a, np.float32))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "bool"])
def test_integers_to_bfloat16(dtype):
    x = np.arange(-300, 300, 7).astype(dtype)
    compiled = jq.compile(jq.Model(lambda p, x: x.astype(jnp.bfloat16), {}, (x,)), "float")
    want = jax.jit(lambda x: x.astype(jnp.bfloat16))(x)
    np.testing.assert_array_equal(compiled(x).astype(np.float32), np.asarray(want, np.float32))


def test_padding_in_bfloat16():
    """Its value is an integer that JAX converts."""
    x = np.arange(12, dtype=np.float32).astype(jnp.bfloat16).reshape(4, 3)
    compiled = jq.compile(
        jq.Model(lambda p, x: jnp.pad(x, 1, constant_values=7), {}, (x,)), "float"
    )
    want = np.pad(x.astype(np.float32), 1, constant_values=7)
    np.testing.assert_array_equal(compiled(x).astype(np.float32), want)
