"""`.tflite` files in LiteRT: the bits of the integer program, by reference kernels and XNNPACK."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
import jq.models
from jq.device.exporting import PIPELINE
from jq.device.forms.tflite import run

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
pytestmark = pytest.mark.usefixtures("quick_xla")

DIMENSIONS = ("NHWC", "HWIO", "NHWC")
Apply = Callable[[Any, jax.Array], jax.Array]


def convolved(x: jax.Array, w: jax.Array, stride: int, padding: Any, **other: Any) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=DIMENSIONS, **other
    )


def mixed(p: Any, x: jax.Array) -> jax.Array:
    """Uneven padding, a dilated filter, groups, a residual sum, a clamp and a mean."""
    x = jax.nn.relu6(convolved(x, p["first"], 2, ((0, 1), (2, 0))))
    y = convolved(x, p["deep"], 1, "SAME", feature_group_count=8, rhs_dilation=(2, 2))
    x = jnp.clip(x + y, -0.4, 0.9)
    x = convolved(x, p["groups"], 1, "VALID", feature_group_count=2)
    return x.mean((1, 2)) @ p["dense"]


def moved(p: Any, x: jax.Array) -> jax.Array:
    """Tables, a transposed convolution, pools and moves; no sum of two tensors. Half of the
    channels have negative factors."""
    x = jax.nn.sigmoid(convolved(x, p["first"], 1, "SAME") * jnp.float32([1, -0.5] * 4))
    up = jax.lax.conv_transpose(x, p["up"], (2, 2), "SAME", dimension_numbers=DIMENSIONS)
    up = jax.lax.reduce_window(
        up, -np.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 0), (1, 0), (0, 0))
    )
    x = jnp.concatenate([x, up], 3)
    x = jax.lax.slice(x.transpose(0, 2, 1, 3), (0, 1, 0, 0), (1, 7, 8, 16))
    x = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    return jnp.tanh(x.reshape(1, -1) @ p["wide"]).max(1, keepdims=True)


def falling(p: Any, x: jax.Array) -> jax.Array:
    """Means of windows in front of a sigmoid, which takes them with the other sign: the factor of
    their rescale is negative. Those of two channels are 0, as the sines of a first position."""
    x = jax.nn.sigmoid(convolved(x, p["first"], 1, "SAME"))
    x = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "SAME") / 4
    return jax.nn.sigmoid(x * jnp.float32([1, 0.5, 0, -1] * 2))


def model(apply: Apply) -> jq.Model:
    rng = np.random.default_rng(1)
    shapes = {
        "first": (3, 3, 3, 8),
        "deep": (3, 3, 1, 8),
        "groups": (2, 2, 4, 6),
        "dense": (6, 5),
        "up": (3, 3, 8, 8),
        "wide": (192, 12),
    }
    params = {k: rng.standard_normal(s, np.float32) / 4 for k, s in shapes.items()}
    samples = [(rng.standard_normal((1, 8, 8, 3), np.float32),) for _ in range(3)]
    return jq.Model(apply, params, samples[0], calibration=samples)


@pytest.mark.parametrize("target", ["litert-reference", "litert"])
def test_digits_have_the_same_bits(target: str, tmp_path: Path) -> None:
    found = jq.export(jq.models.digits_cnn, tmp_path / "m.tflite", target=target, verify=True)
    assert found["outputs"] >= 320 * 4
    assert found["same"] == found["outputs"]


@pytest.mark.parametrize(
    ("apply", "target"),
    list(itertools.product((mixed, moved, falling), ("litert-reference", "litert"))),
)
def test_small_networks_have_the_same_bits(apply: Apply, target: str, tmp_path: Path) -> None:
    found = jq.export(model(apply), tmp_path / "m.tflite", target=target, verify=True)
    assert found["same"] == found["outputs"] > 0


@pytest.mark.parametrize("target", ["litert-reference", "litert"])
def test_codes_that_are_made_and_read_with_other_scales(target: str, tmp_path: Path) -> None:
    """Operators on integers of an ONNX file, whose results have steps of 1 until they are read."""
    pytest.importorskip("onnxruntime")
    drawn = importlib.import_module("tests.frontends.onnx.drawn_graphs").quantized(9123, tmp_path)
    given: Any = {"calibration": [(drawn.x,)], "settings": {"recovery": False}}
    path = tmp_path / "m.tflite"
    found = jq.export(str(drawn.path), path, target=target, verify=True, **given)
    assert found["same"] == found["outputs"] > 0


def test_float_ends(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    found = jq.export(model(moved), path, ends="float", target="litert", verify=True)
    assert found["same"] == found["outputs"] > 0
    assert [t["dtype"] for t in (*found["inputs"], *found["results"])] == ["float32"] * 2


def test_what_has_no_form_is_named(tmp_path: Path) -> None:
    """Factors that no scales give, where the target does not ask for those that they do."""
    with pytest.raises(jq.UserError, match="no float32 scale") as error:
        jq.export(
            model(mixed),
            tmp_path / "m.tflite",
            target="npu-int8",
            settings={"activations.residual": "int8"},
        )
    assert "reduce_sum" in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["litert-reference", "litert"])
def test_next_to_dead_channels_keep_their_biases(target: str, tmp_path: Path) -> None:
    """Their biases are beyond 32 bits in steps of weights that BatchNorm left almost nothing of."""
    rng = np.random.default_rng(2)
    w, v, b = (rng.standard_normal(s, np.float32) for s in ((8, 3, 3, 3), (8, 4), 8))
    w[2] *= 1e-10
    v[:, 3] *= 1e-12

    def apply(p: Any, x: jax.Array) -> jax.Array:
        w = p["w"].transpose(2, 3, 1, 0)  # as PyTorch stores it
        return jax.nn.relu(convolved(x, w, 1, "SAME") + p["b"]) @ p["v"] + p["b"][:4]

    samples = [(rng.standard_normal((1, 6, 6, 3), np.float32),) for _ in range(2)]
    given = jq.Model(apply, {"w": w, "v": v, "b": b}, samples[0], calibration=samples)
    found = jq.export(given, tmp_path / "m.tflite", target=target, verify=True)
    assert found["same"] == found["outputs"] > 0


def chosen(p: Any, x: jax.Array, rows: jax.Array) -> jax.Array:
    """Rows of a table that is computed, some beyond its end, a choice by codes, and one by a
    condition for all elements of a row."""
    y = jnp.tanh(x.reshape(8, 24) @ p["up"].reshape(24, 24))
    y = jnp.take(y, rows, axis=0, mode="clip")
    y = jnp.where((y >= 0.1) & ~(y > 0.7), y @ p["up"].reshape(24, 24), y / 2)
    y = y @ p["up"].reshape(24, 24)
    y = jnp.where(y > jnp.tanh(y[::-1] / 2), y @ p["up"].reshape(24, 24), jnp.tanh(y))
    y = y @ p["up"].reshape(24, 24)
    return jnp.where(rows[:, None] > 3, y, jnp.tanh(y)) @ p["up"].reshape(24, 24)


@pytest.mark.parametrize("target", ["litert-reference", "litert"])
def test_choices_and_rows_have_the_same_bits(target: str, tmp_path: Path) -> None:
    given, rng = model(moved), np.random.default_rng(3)
    rows = (rng.integers(-2, 10, 5, np.int32) for _ in range(3))
    samples = [(*call, index) for call, index in zip(given.calibration, rows, strict=True)]
    network = jq.Model(chosen, given.params, samples[0], calibration=samples)
    found = jq.export(network, tmp_path / "m.tflite", target=target, verify=True)
    assert found["same"] == found["outputs"] > 0
    assert {"select", "gather_rows", "greater_equal"} <= set(found["operators"])


def several(p: Any, x: jax.Array) -> jax.Array:
    """A residual sum, a difference, a product of two tensors, a softmax, an upsampling, averages of
    windows that are padded, and rows of unit length."""
    x = jax.nn.relu(convolved(x, p["first"], 1, "SAME"))
    y = jnp.tanh(convolved(x, p["up"], 1, "SAME"))
    z = (x + y) * jax.nn.sigmoid(y - x)
    z = jnp.concatenate([jax.nn.softmax(z), z], 3).repeat(2, 1)
    z = jax.lax.reduce_window(z, 0.0, jax.lax.add, (1, 3, 2, 1), (1, 2, 2, 1), "SAME") / 6
    z = jnp.pad(z.max(2), ((0, 0), (1, 0), (0, 0)))
    z = z / jnp.sqrt((z * z).sum(-1, keepdims=True) + 1e-3)
    return z.reshape(1, -1)[:, :96] @ p["wide"][:96]


def powers(p: Any, x: jax.Array) -> jax.Array:
    """Sums of tensors whose scales are next to powers of two, which LiteRT's kernels shift by."""
    x = convolved(x, p["first"], 1, "SAME") * 9
    y, z = jnp.clip(x, -1, 1), jnp.clip(convolved(x, p["up"], 1, "SAME"), -0.5, 0.5)
    return jnp.clip(y + z, -1, 1) - jnp.clip(y[:, ::-1], -0.25, 0.25)


@pytest.mark.parametrize("apply", [mixed, moved, falling, several, powers])
def test_activations_of_16_bits_have_the_same_bits(apply: Apply, tmp_path: Path) -> None:
    """Sums of 64 bits, by mantissas of 15; LiteRT's default kernels take the same ones. What was
    written is read back."""
    path, settings = tmp_path / "m.tflite", {"recovery": False}
    how: Any = {"pipeline": "int8x16-static", "target": "litert-reference"}
    found = jq.export(model(apply), path, verify=True, settings=settings, **how)
    assert found["same"] == found["outputs"] > 0
    assert {t["dtype"] for t in (*found["inputs"], *found["results"])} == {"int16"}
    rng, data = np.random.default_rng(0), path.read_bytes()
    calls = [[rng.integers(-32767, 32768, (1, 8, 8, 3)).astype(np.int16)] for _ in range(2)]
    other = data.replace(b": double", b": either")  # for `run`, the default kernels
    for first, second in zip(run(data, calls), run(other, calls), strict=True):
        assert np.array_equal(first[0], second[0])
    if apply not in (several, powers):
        how["pipeline"] = PIPELINE  # which keeps what a file has
        again = jq.export(str(path), tmp_path / "again.tflite", verify=True, **how)
        assert again["same"] == again["outputs"] > 0
        got, want = run((tmp_path / "again.tflite").read_bytes(), calls), run(data, calls)
        assert np.array_equal(got[0][0], want[0][0])


def test_sums_of_64_bits_are_kernels_of_tflite_alone(tmp_path: Path) -> None:
    how: Any = {"settings": {"recovery": False, "activations.format": "int16"}}
    for name in ("m.tosa", "m.onnx"):
        with pytest.raises(jq.UserError, match="sums of 64 bits has no form"):
            jq.export(model(mixed), tmp_path / name, target="litert-reference", **how)
    assert not list(tmp_path.iterdir())
