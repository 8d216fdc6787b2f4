"""Sums of 16-bit floats."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import jq
from tests.traps.helpers import mended, raw, trap

CONVOLUTION = """(%x: tensor<1x4x4x1024xbf16>, %w: tensor<2x2x1024x8xbf16>)
    -> tensor<1x3x3x8xbf16> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x4x4x1024xbf16>, tensor<2x2x1024x8xbf16>) -> tensor<1x3x3x8xbf16>
  return %y : tensor<1x3x3x8xbf16> }"""
ONES = [np.ones(shape, ml_dtypes.bfloat16) for shape in ((1, 4, 4, 1024), (2, 2, 1024, 8))]
SUM = np.full((1, 3, 3, 8), 4096)  # a number of bfloat16; 256 + 1 is none


@trap
def test_sums_of_halves():
    np.testing.assert_array_equal(raw(CONVOLUTION, *ONES)[0].astype(int), SUM)


def test_sums_of_halves_are_float32():
    found = mended("widen-sums", CONVOLUTION, *ONES)[0]
    np.testing.assert_array_equal(found.astype(int), SUM)


def convolve(x: jax.Array, w: jax.Array, groups: int) -> jax.Array:
    return lax.conv_general_dilated(
        x,
        w,
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def zero(x: jax.Array) -> np.ndarray:
    return np.zeros((), x.dtype)


SUMS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gram": lambda x: x @ x.T,
    "convolution": lambda x: convolve(x.reshape(2, 4, 4, 256), x.reshape(4, 4, 256, 2), 1),
    "depthwise": lambda x: convolve(x.reshape(1, 64, 64, 2), x.reshape(64, 64, 1, 2), 2),
    "reduce": lambda x: lax.reduce(x, zero(x), lax.add, (1,)),
    "pool": lambda x: lax.reduce_window(x, zero(x), lax.add, (1, 2048), (1, 2048), "VALID"),
    "exponentials": lambda x: lax.cumlogsumexp(x, 1),
}


FORMS = [(form, ml_dtypes.bfloat16) for form in SUMS] + [("convolution", np.float16)]


@pytest.mark.parametrize(("form", "kind"), FORMS)
def test_sums_of_halves_are_rounded_once(form, kind):
    """Against float32 sums of the same numbers: half a step of the result, and little more."""
    x = np.random.default_rng(0).random((2, 4096)).astype(kind)
    exact = np.asarray(SUMS[form](jnp.asarray(x, jnp.float32)))
    found = jq.compile(jq.Model(lambda p, x: SUMS[form](x), {}, (x,)), "float")(x)
    step = float(jnp.finfo(kind).eps)
    np.testing.assert_allclose(found.astype(np.float32), exact, rtol=0.51 * step)


def test_a_sum_that_reads_bits_stays():
    """Bits of a number have the size of its type."""

    def add(a: jax.Array, b: jax.Array) -> jax.Array:
        bits = lax.bitcast_convert_type(b, jnp.uint16) & jnp.uint16(0x7FFF)
        return a + lax.bitcast_convert_type(bits, b.dtype)

    x = np.full((2, 16), -1, ml_dtypes.bfloat16)
    model = jq.Model(lambda p, x: lax.reduce(x, zero(x), add, (1,)), {}, (x,))
    assert jq.compile(model, "float")(x).astype(int).tolist() == [16, 16]


@pytest.mark.parametrize("pipeline", ["int8-weight-only", "bf16"])
def test_a_layer_of_halves(pipeline):
    """No further from exact than the same pipeline is for float32 numbers, and a step."""
    rng = np.random.default_rng(1)
    x = rng.random((4, 2048)).astype(ml_dtypes.bfloat16)
    w = rng.random((2048, 32)).astype(ml_dtypes.bfloat16)
    exact = x.astype(np.float32) @ w.astype(np.float32)
    wide = [jnp.asarray(v, jnp.float32) for v in (x, w)]
    found, other = (
        jq.compile(jq.Model(lambda p, x: x @ p, w, (x,)), pipeline)(x).astype(np.float32)
        for x, w in ((x, w), wide)
    )
    rounding = float(jnp.finfo(jnp.bfloat16).eps) * exact.max()
    assert abs(found - exact).max() <= abs(other - exact).max() + rounding
