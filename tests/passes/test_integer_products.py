"""Products of integers that a model computes itself: kernels, and the same sums to the bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from tests.support.programs import assert_same_bits, evaluated, run_iree

RNG = np.random.default_rng(0)
F32, I32 = jnp.float32, jnp.int32
X = RNG.standard_normal((8, 64)).astype(np.float32)
W = RNG.integers(-127, 128, (64, 48)).astype(np.int8)
PACKED = RNG.integers(-128, 128, (64, 24)).astype(np.int8)
GROUPS = RNG.integers(-127, 128, (2, 32, 48)).astype(np.int8)
BIAS = RNG.integers(-5000, 5000, 48).astype(np.int32)


def rounded(x):
    scale = jnp.abs(x).max(-1, keepdims=True) / 127
    return jnp.round(x / scale).astype(jnp.int8), scale


def dot(a, b):
    return jax.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=I32)


def bias(p, x):
    """TFLite: whole numbers are added to the sums, which are rounded to int8 again."""
    sums = dot(rounded(x)[0], p["w"]) + BIAS
    return jnp.clip(jnp.round(sums.astype(F32) * 0.001), -128, 127).astype(jnp.int8)


def unsigned(p, x):
    """ONNX: codes from 0 with a zero point for each row, taken off after the product."""
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    scale = (high - low) / 255
    zero = jnp.round(-low / scale).astype(I32)
    q = jnp.clip(jnp.round(x / scale) + zero, 0, 255).astype(jnp.uint8)
    sums = q.astype(I32) @ p["w"].astype(I32) - zero * p["w"].astype(I32).sum(0)
    return sums.astype(F32) * scale


def nibbles(p, x):
    q, scale = rounded(x)
    both = jnp.stack([(p["packed"] << 4) >> 4, p["packed"] >> 4], -1).reshape(64, 48)
    return dot(q, both).astype(F32) * scale


def groups(p, x):
    q, scale = rounded(x.reshape(8, 2, 32))
    sums = jnp.einsum("bgk,gkn->bgn", q, p["groups"], preferred_element_type=I32)
    return (sums.astype(F32) * scale).sum(1)


FORMS = {f.__name__: f for f in (bias, unsigned, nibbles, groups)}
PARAMS = {"w": W, "packed": PACKED, "groups": GROUPS}


@pytest.mark.parametrize("name", FORMS)
def test_kernels(name):
    own = {"nibbles": "packed", "groups": "groups"}.get(name, "w")
    params = {own: PARAMS[own]}
    model = jq.Model(FORMS[name], params, (X,))
    levels = jq.rewrite(model, pipeline="float", settings={"strict_encodings": True})
    (got,) = evaluated(levels["integer"], X)
    want = np.asarray(jax.jit(FORMS[name])(params, X))
    assert (
        np.array_equal(got, want)
        if name == "bias"
        else np.abs(got - want).max() <= 1e-6 * (np.abs(want).max())
    )
    (row,) = (o for o in jq.explain(model, pipeline="float")["ops"] if o["op"] == "dot_general")
    assert row["decision"] == "integer" and (row["kernel"] or row["reason"]), row
    assert list(levels["qdq"].encodings) == [own]
    held = sum(a.nbytes for n, a in levels["integer"].weights.items() if a.dtype.itemsize == 1)
    assert held <= params[own].nbytes  # nothing beside the codes


def test_integers_that_float32_does_not_hold_stay():
    """Sums of int8 up to 2^24 and beyond, read as integers."""

    def forward(p, x):
        return dot(x.astype(jnp.int8), p["w"]) + 1

    w = np.full((2048, 8), 127, np.int8)
    x = np.full((1, 2048), 127, np.float32)
    model = jq.Model(forward, {"w": w}, (x,))
    (op,) = jq.plan(model, pipeline="float").ops
    assert (op.decision, op.reason) == ("float", "already integer")
    (got,) = evaluated(jq.rewrite(model, pipeline="float")["integer"], x)
    assert (got == 2048 * 127 * 127 + 1).all()


def test_each_layer_of_a_scan_has_a_kernel():
    """Rows of what the loop carries are quantized, and multiplied by one layer of a stack."""

    def forward(p, x):
        def body(h, layer):
            scale = jnp.abs(h).max(-1, keepdims=True) / 64  # exact, whoever divides
            q = jnp.round(h / scale).astype(jnp.int8)
            return jax.nn.relu(dot(q, layer["w"]).astype(F32) * scale * layer["s"]), None

        return jax.lax.scan(body, x, p)[0]

    stack = RNG.integers(-127, 128, (3, 64, 64)).astype(np.int8)
    params = {"w": stack, "s": np.full((3, 1, 64), 1 / 1024, np.float32)}
    model = jq.Model(forward, params, (X,))
    (row,) = jq.explain(model, pipeline="float", target="x86-64-v3")["ops"]
    assert row["decision"] == "integer" and row["kernel"], row
    levels = jq.rewrite(model, pipeline="float", target="x86-64-v3")
    calls = [op for op in levels["target"].walk() if op.operation.name == "func.call"]
    assert len([op for op in calls if row["kernel"] in str(op)]) == 3
    (got,), (want,) = (evaluated(levels["integer"], X), run_iree(levels["target"], [X]))
    assert_same_bits(got, want, "integer level and kernels")
    np.testing.assert_allclose(got, jax.jit(forward)(params, X), rtol=1e-5, atol=1e-6)
    # Where nothing is of codes, a loop stays one.
    floats = {"w": stack.astype(np.float32), "s": params["s"]}
    plain = jq.Model(
        lambda p, x: jax.lax.scan(lambda h, w: (h @ w, None), x, p["w"])[0], floats, (X,)
    )
    target = jq.rewrite(plain, pipeline="float", target="x86-64-v3")["target"]
    assert any(op.operation.name == "stablehlo.while" for op in target.walk())
