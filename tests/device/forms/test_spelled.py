"""Steps that TFLite has no operator of its own for, in LiteRT: the integer program's bits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.device.forms.tflite import file, run
from jq.device.forms.tflite.builder import Builder
from jq.device.forms.tflite.integers import Integers
from jq.device.network import Tensor
from jq.formats.arrays import NUMPY
from jq.formats.requantize import DOUBLE

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
pytestmark = pytest.mark.usefixtures("quick_xla")
Apply = Callable[..., jax.Array]
SIZES = {"q": (8, 8), "k": (8, 8), "v": (8, 8), "g": (8,), "wide": (8, 600)}


def attention(p: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
    """Two heads, a mask that is an input, a residual sum and a normalization."""
    q, k, v = ((x @ p[n]).reshape(2, 6, 2, 4).transpose(0, 2, 1, 3) for n in "qkv")
    scores = q @ k.swapaxes(2, 3) / 2 + (mask[:, :1, None, :6] > 0) * -1e9
    y = x + (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(2, 6, 8)
    away = y - y.mean(-1, keepdims=True)
    return away / jnp.sqrt((away * away).mean(-1, keepdims=True) + 1e-5) * p["g"] @ p["k"]


def causal(p: Any, x: jax.Array, _: jax.Array) -> jax.Array:
    """A choice by a known condition in front of softmax."""
    x = x[0]
    seen = jnp.tril(jnp.ones((6, 6), bool))
    scores = jnp.where(seen, (x @ p["q"]) @ (x @ p["k"]).T, jnp.finfo(jnp.float32).min)
    return jax.nn.softmax(scores) @ x


def columns(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Softmax along another axis than the last, and fine steps, whose table is in two parts."""
    return jax.nn.softmax(x @ p["q"], 1) * jax.nn.softmax(y @ p["wide"] / 50)[..., :8]


def divided(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Quotients, products of several scales, and terms that are far apart."""
    x, y = x @ p["q"] * 0.001, y @ p["k"] * 30
    return jnp.concatenate([x / y, x - y, x * y], -1)


def long(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """A sum of products beyond 24 bits."""
    x, y = (jnp.tanh(v @ p["wide"]).reshape(12, 600) for v in (x, y))
    return x @ y.T


def recurrent(p: Any, x: jax.Array, _: jax.Array) -> jax.Array:
    """A gated cell, whose sums have multiples for terms."""

    def cell(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        gate = jax.nn.sigmoid(x @ p["q"] + h @ p["k"])
        h = (1 - gate) * jnp.tanh(x @ p["v"] + h @ p["q"]) + gate * h
        return h, h

    return jax.lax.scan(cell, jnp.zeros((2, 8)), x.transpose(1, 0, 2))[1]


def picked(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Every second and third element, and elements along an inner axis."""
    x, y = x @ p["q"], y @ p["k"]
    return jnp.concatenate([x[:, ::2], x[:, 4::-2, ::1], y[:, jnp.array([5, 0, 5])]], 1)[..., 1::3]


def scaled(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Numbers by channel and along several axes, sums along axes that are no neighbours, and a
    factor that XNNPACK does not take."""
    x, y = x * p["g"] + p["g"], y.transpose(1, 0, 2) + p["q"][:2]
    ends = jnp.clip(x * 2000, -0.5, 0.5)
    return jnp.concatenate([x, ends, y.transpose(1, 0, 2), x.mean((0, 2), keepdims=True) + x], 1)


def placed(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """The places of extremes, along the last axis and another."""
    return jnp.argmax(x @ p["q"], -1)[..., None] + jnp.argmin(y @ p["k"], 1)[:, None]


def model(apply: Apply) -> jq.Model:
    rng = np.random.default_rng(3)
    params = {k: rng.standard_normal(s, np.float32) / 2 for k, s in SIZES.items()}
    samples = [tuple(rng.standard_normal((2, 2, 6, 8), np.float32)) for _ in range(3)]
    return jq.Model(apply, params, samples[0], calibration=samples)


@pytest.mark.parametrize("target", ["litert-reference", "litert"])
@pytest.mark.parametrize(
    "apply", [attention, causal, columns, divided, long, picked, placed, recurrent, scaled]
)
def test_it_has_the_same_bits(apply: Apply, target: str, tmp_path: Path) -> None:
    settings = {"recovery": False}
    path = tmp_path / "m.tflite"
    found = jq.export(model(apply), path, target=target, verify=True, settings=settings)
    assert found["same"] == found["outputs"] > 0


def test_a_choice_is_refused_by_what_reads_it(tmp_path: Path) -> None:
    """Its ops have no names of their own: a condition that is an input."""

    def apply(p: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        scores = jnp.where(y[0] > 0, x[0] @ p["q"], -5.0)
        return jax.nn.softmax(scores) @ p["v"]

    with pytest.raises(jq.UserError, match="has no form of its own") as error:
        jq.export(model(apply), tmp_path / "m.tosa", settings={"recovery": False})
    assert error.value.op == "v"


@pytest.mark.parametrize("target", ["litert-reference", "npu-int8"])
def test_a_product_with_scales_for_each_matrix_is_refused(target: str, tmp_path: Path) -> None:
    """As many matrices as columns: no writer may take the scales of these for those of others."""

    def apply(p: Any, x: jax.Array, _: jax.Array) -> jax.Array:
        return jnp.einsum("bmk,bkn->bmn", x.reshape(3, 4, 8), p["many"])

    rng = np.random.default_rng(3)
    params = {"many": rng.standard_normal((3, 8, 3), np.float32)}
    given = replace(model(apply), params=params)
    path = tmp_path / ("m.tosa" if target == "npu-int8" else "m.tflite")
    with pytest.raises(jq.UserError, match="more than the channels"):
        jq.export(given, path, target=target, settings={"recovery": False})


def test_integers_are_those_of_numpy() -> None:
    """Every operation that is made of several operators, up to the ends of 62 bits."""
    rng = np.random.default_rng(0)
    size = np.concatenate(
        [[0, 1, 2, (1 << 62), (1 << 62) - 1, (1 << 31) - 1, 1 << 32], 1 << np.arange(62)]
    )
    size = np.concatenate([size, rng.integers(0, 1 << 62, 400) >> rng.integers(0, 62, 400)])
    by = np.maximum(rng.permutation(size), 1)
    shifts = rng.integers(0, 62, len(size))
    builder = Builder(DOUBLE, set())
    x, y, s = (Tensor(n, size.shape, "int64") for n in "xys")
    ops, minus = Integers(builder), np.array([-1])

    def results(ops: Any, x: Any, y: Any, s: Any) -> list[Any]:
        negative = ops.mul(x, np.broadcast_to(minus, size.shape) if ops is NUMPY else minus)
        return [
            ops.quotient(x, y),
            ops.leading_zeros(x),
            ops.shift_right_signed(negative, s),
            *(ops.shift_right_signed(v, n) for n in (1, 30, 31, 32, 33, 63) for v in (x, negative)),
        ]

    wanted = results(NUMPY, size, by, shifts)
    inputs = [builder.place(t) for t in (x, y, s)]
    outputs = [builder.place(t) for t in results(ops, x, y, s)]
    found = run(file(builder, inputs, outputs), [[size, by, shifts]])[0]
    for want, got in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(got, want)
