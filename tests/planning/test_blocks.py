"""Blocks are runs of neighbours along what is summed, however many axes that has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.ir.ops.rules.reshape import new_block
from tests.support.programs import evaluated

RNG = np.random.default_rng(0)
W = RNG.standard_normal((12, 64, 96)).astype(np.float32)
X = RNG.standard_normal((2, 12, 64)).astype(np.float32)


@pytest.mark.parametrize(
    "fn",
    [
        lambda p, x: jnp.einsum("bhd,hdf->bf", x, p["w"]),  # Flax's DenseGeneral
        lambda p, x: x.reshape(2, -1) @ p["w"].reshape(-1, 96),
    ],
)
def test_a_kernel_summed_over_two_axes(fn):
    levels = jq.rewrite(jq.Model(fn, {"w": W}, (X,)), pipeline="int4-dynamic")
    assert levels["qdq"].encodings["w"]["block"] == [1, 32, 1]
    assert levels["qdq"].weights["w:scale"].shape == (12, 2, 96)
    (op,) = jq.plan(jq.Model(fn, {"w": W}, (X,)), pipeline="int4-dynamic").ops
    assert op.decision == "integer" and "xi32>" in levels["integer"].text()
    (want,), (got,) = (evaluated(levels[level], X) for level in ("qdq", "integer"))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("dtype", ["float4_e2m1fn", "float8_e4m3fn"])
def test_an_exponent_is_shared_by_32_neighbours_alone(dtype):
    """Also in a convolution's kernel, as the MX formats have it."""
    conv = lambda p, x: jax.lax.conv_general_dilated(x, p["k"], (1, 1), "SAME")  # noqa: E731
    kernel = RNG.standard_normal((8, 64, 3, 3)).astype(np.float32)
    given = jq.Model(conv, {"k": kernel}, (kernel,))
    scale = {} if dtype.startswith("float4") else {"scale_dtype": "float8_e8m0fnu"}
    stored = jq.quantize_weights(given, dtype=dtype, granularity="per_block", **scale)
    assert stored.params["k"].encoding.block == (1, 32, 1, 1)


@pytest.mark.parametrize(
    ("before", "block", "after", "expected"),
    [
        ((12, 64, 96), (1, 32, 1), (768, 96), (32, 1)),
        ((768, 96), (32, 1), (12, 64, 96), (1, 32, 1)),
        ((768, 96), (64, 1), (12, 64, 96), (1, 0, 1)),
        ((768, 96), (128, 1), (12, 64, 96), (2, 0, 1)),
        ((768, 96), (96, 1), (12, 64, 96), None),  # one and a half of an axis
        ((4, 6), (0, 0), (24,), (0,)),
        ((4, 6), (1, 0), (24,), (6,)),
        ((4, 6), (0, 1), (24,), None),
        ((4, 6), (1, 1), (2, 12), (1, 1)),
        ((10, 3), (4, 1), (2, 5, 3), None),
    ],
)
def test_blocks_after_a_reshape(before, block, after, expected):
    assert new_block(before, after, block) == expected
