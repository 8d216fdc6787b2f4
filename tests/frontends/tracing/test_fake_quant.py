"""Fake quantization in JAX: the values of the formats, and the gradients of a straight line."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import JqError
from jq.formats import Encoding, get_format
from tests.support.programs import evaluated

X = np.random.default_rng(0).standard_normal((6, 70)).astype(np.float32) * 3
MX = ("mxint8", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4")


@pytest.mark.parametrize("format", MX)
@pytest.mark.parametrize("jit", [False, True])
def test_mx_has_the_bits_of_the_format(format, jit):
    x = X.copy()
    x[0, :32] = 0
    x[1] *= np.float32(2.0**-130)  # subnormal
    enc = Encoding(format, x.shape, (1, 32))
    want = get_format(format).to_numpy(get_format(format).encode(x, enc), enc)
    call = jax.jit(lambda a: jq.mx_fake_quant(a, format)) if jit else jq.mx_fake_quant
    got = call(x) if jit else call(x, format)
    normal = np.abs(want) >= 2.0**-126  # XLA on a CPU flushes what is smaller
    assert np.array_equal(np.asarray(got)[normal], want[normal])
    assert np.abs(np.asarray(got)[~normal]).max(initial=0) < 2.0**-126


@pytest.mark.parametrize("format", ["int8", "uint8", "int4", "int16"])
@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("jit", [False, True])
def test_affine_with_a_range_is_onnx_arithmetic(format, scheme, jit):
    """Against the written definition in NumPy, ties included."""
    low, high = np.float32(-2.5), np.float32(6)
    bits = get_format(format).bits
    top = 2 ** (bits - 1) - 1
    least = -top if scheme == "symmetric" else -top - 1
    if scheme == "symmetric":
        scale, zero = high / np.float32(top), 0
    else:
        scale = (high - low) / np.float32(2**bits - 1)
        first = 0 if format.startswith("u") else -top - 1
        zero = int(np.rint(np.float32(first) - low / scale)) - (first + top + 1)
    ties = np.arange(-9, 9, dtype=np.float32) + np.float32(0.5)
    x = np.concatenate([X.ravel(), ties * np.float32(scale)])
    codes = np.clip(np.rint(x / scale) + zero, least, top)
    want = ((codes - zero) * scale).astype(np.float32)

    def call(a):
        return jq.fake_quant(a, format, scheme=scheme, range=(low, high))

    assert np.array_equal(np.asarray((jax.jit(call) if jit else call)(x)), want)


@pytest.mark.parametrize(
    ("options", "block"),
    [
        ({}, (0, 0)),
        ({"granularity": "per-channel"}, (0, 1)),
        ({"granularity": "per-channel", "axis": 0}, (1, 0)),
        ({"granularity": "per-token"}, (1, 0)),
        ({"granularity": "per-block", "axis": 1, "block_size": 32}, (1, 32)),
    ],
)
def test_own_range_per_granularity(options, block):
    enc = Encoding("int8", X.shape, block)
    parts = get_format("int8").encode(X, enc)
    want = get_format("int8").to_numpy(parts, enc)
    assert np.allclose(jq.fake_quant(X, **options), want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
def test_gradients_pass_straight_through_and_reach_the_range(scheme):
    x = jnp.asarray([-9.0, -1.0, 0.0, 1.0, 9.0, 10.0])

    def total(x, low, high):
        return (jq.fake_quant(x, range=(low, high), scheme=scheme) * jnp.arange(1.0, 7)).sum()

    dx, low, high = jax.grad(total, argnums=(0, 1, 2))(x, jnp.float32(-2), jnp.float32(3))
    assert dx.tolist() == [0, 2, 3, 4, 0, 0]
    # Symmetric, the range is [-3, 3]: only `high` moves it, both ends at once.
    assert (low, high) == ((1, 11) if scheme == "asymmetric" else (0, 10))
    assert (jax.grad(lambda x: jq.fake_quant(x).sum())(x) == 1).all()
    assert (jax.grad(lambda x: jq.mx_fake_quant(x).sum())(x) == 1).all()


def test_16_bit_floats_keep_their_type():
    assert jq.fake_quant(jnp.ones(4, jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jq.fake_quant(np.arange(3)), "float arrays"),
        (lambda: jq.fake_quant(X, "mxint8"), "no format mxint8"),
        (lambda: jq.mx_fake_quant(X, "int8"), "no format int8"),
        (lambda: jq.fake_quant(X, "int5"), "unknown number format"),
        (lambda: jq.fake_quant(X, 3), "unknown number format"),  # type: ignore[arg-type]
        (lambda: jq.fake_quant(X, granularity="per-row"), "per-row"),
        (lambda: jq.fake_quant(X, granularity="per-channel", axis=2), "axis 2"),
        (lambda: jq.fake_quant(X, range=([0, 1], [2, 3])), r"range of shape \(2,\)"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(JqError, match=message):
        call()


MAPPED = {
    "given": lambda x: jq.fake_quant(x, range=(-2.0, 2.0)),
    "own": lambda x: jq.fake_quant(x, scheme="asymmetric"),
    "channels": lambda x: jq.fake_quant(x, "int4", granularity="per-channel"),
    "mx": lambda x: jq.mx_fake_quant(x, "mxint8"),
}


@pytest.mark.parametrize("name", MAPPED)
def test_vmap_is_a_loop_over_examples(name):
    f, x = MAPPED[name], np.random.default_rng(1).standard_normal((3, 2, 4, 32)).astype(np.float32)
    want = np.stack([np.stack([f(b) for b in a]) for a in x])
    for g in (jax.vmap(jax.vmap(f)), jax.jit(jax.vmap(jax.vmap(f)))):
        np.testing.assert_array_equal(g(x), want)
    slope = jax.vmap(jax.grad(lambda x: (f(x) * x).sum()))(x[0])
    np.testing.assert_array_equal(
        slope, np.stack([jax.grad(lambda x: (f(x) * x).sum())(b) for b in x[0]])
    )


def test_vmap_over_learned_ranges():
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    tops = np.array([1.0, 2.0, 4.0], np.float32)

    def loss(x, top):
        return jq.fake_quant(x, range=(-top, top)).sum()

    got = jax.vmap(jax.grad(loss, argnums=1))(x, tops)
    np.testing.assert_array_equal(
        got, [jax.grad(loss, argnums=1)(a, t) for a, t in zip(x, tops, strict=True)]
    )


def test_a_mapped_model_keeps_its_parameters():
    """One marker, with the range that was given: no calibration is needed."""
    w = np.random.default_rng(2).standard_normal((8, 8)).astype(np.float32)

    def one(p, x):
        x = jq.fake_quant(x, range=(-2.0, 2.0))
        return x @ jq.fake_quant(p["w"], granularity="per-channel")

    x = np.random.default_rng(3).standard_normal((5, 8)).astype(np.float32)
    model = jq.Model(jax.vmap(one, (None, 0)), {"w": w}, (x,))
    (op,) = jq.plan(model, pipeline="int8-static").ops
    assert op.decision == "integer"
    (got,) = evaluated(jq.rewrite(model, pipeline="int8-static")["integer"], x)
    np.testing.assert_allclose(got, one({"w": w}, x), rtol=1e-5, atol=1e-5)
