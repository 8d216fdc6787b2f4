"""Refusals on devices without floats name what was written, never what a rewrite made of it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.ir.oracle.xla import XlaExecutable
from jq.target.target import load_target
from tests.support.targets import LIMITS


def test_a_sample_of_refused_ops() -> None:
    from suites.refused_ops import OPS, drawn, wrong

    found = [wrong(case) for case in drawn(len(OPS), seed=0)]
    assert not [line for _, lines in found for line in lines]
    assert sum(count for count, _ in found) > 10  # there are some


def test_steps_that_are_too_far_apart_are_those_of_an_op() -> None:
    """Drawn as seed 7 of 240 programs: the edge behind the op was named."""
    from suites.refused_ops import Case, wrong

    case = Case(("layer_norm", "log_softmax"), "ethos-u85", 4, 4, 812312511)
    assert wrong(case) == (1, [])


@pytest.mark.parametrize(
    ("name", "target", "op", "said"),
    [
        ("heads", LIMITS, "attention", "rank 5"),
        ("attention", LIMITS, "attention", "weights alone"),
        ("attention", "ethos-u65", "attention", "no softmax"),
        ("softmax", "ethos-u55", "softmax", "no softmax"),
        ("group_norm", "ethos-u65", "normalization", "no normalization"),
    ],
)
def test_whole_functions_are_refused_once(name: str, target: str, op: str, said: str) -> None:
    from suites.refused_ops import Case

    refused = jq.check(Case((name,), target, 4, 4, 0).model(), target)["refused"]
    assert refused[0]["op"] == op and said in refused[0]["reason"]
    assert len([row for row in refused if row["op"] == op]) == 1


def test_a_choice_is_refused_where_codes_are_not_compared() -> None:
    from suites.refused_ops import Case

    npu = load_target("npu-int8")
    device = npu.device.model_copy(update={"functions": ("table",)})
    target = npu.model_copy(update={"device": device})
    refused = jq.check(Case(("choice_of_two",), "npu-int8", 4, 4, 0).model(), target)["refused"]
    assert [row["op"] for row in refused] == ["compare"]
    assert "maximum and minimum" in refused[0]["help"]


@pytest.mark.parametrize("scale", [np.float32(0.02) * (np.arange(8) % 3 != 1), np.zeros(())])
def test_a_weight_whose_scale_is_0_is_a_weight(scale: np.ndarray) -> None:
    """No second activation, which such a device does not multiply by: its channels are 0."""
    from suites.refused_ops import convolution

    def fn(p: Any, x: Any) -> Any:
        return convolution(x, p["codes"].astype(jnp.float32) * p["scale"])

    rng = np.random.default_rng(0)
    params = {"codes": rng.integers(-127, 128, (3, 3, 4, 8)).astype(np.int8)}
    params["scale"] = scale.astype(np.float32)
    x = rng.standard_normal((1, 4, 4, 4)).astype(np.float32)
    model = jq.Model(fn, params, (x,), calibration=[(x,)])
    assert jq.check(model, LIMITS)["refused"] == []
    levels = jq.rewrite(model, pipeline="int8-static", target=LIMITS)
    found, want = XlaExecutable(levels["integer"])(x)[0], np.asarray(fn(params, x))
    assert not found[..., np.broadcast_to(scale == 0, 8)].any()
    assert np.abs(found - want).max() <= 0.05 * np.abs(want).max()


@pytest.mark.filterwarnings("error")
def test_rows_of_one_number_have_no_normalization() -> None:
    """Groups of one channel, normalized over themselves, are what is added to them."""

    def forward(p: Any, x: Any) -> Any:
        g = (x @ p["w"]).reshape(2, 4, 1)
        g = (g - g.mean(-1, keepdims=True)) / jnp.sqrt(g.var(-1, keepdims=True) + 1e-5)
        return (g.reshape(2, 4) * p["a"] + p["b"]) @ p["w"]

    params = {"w": np.eye(4, dtype=np.float32), "a": np.float32(2), "b": np.float32(3)}
    model = jq.Model(forward, params, (np.ones((2, 4), np.float32),))
    for target in ("npu-int8", "ethos-u85"):
        assert all(row["op"] for row in jq.check(model, target)["refused"])


@pytest.mark.parametrize("name", ["prelu", "prelu_from_below", "two_slopes", "prelu_of_pixels"])
def test_slopes_are_sums_where_a_device_cannot_choose(name: str) -> None:
    """The same numbers as floats, but for roundings to 8 bits: input, weights, sums, result."""
    from suites.refused_ops import Case

    model = Case((name,), LIMITS, 4, 4, 1).model()
    x = np.random.default_rng(2).standard_normal(model.example_inputs[0].shape).astype(np.float32)
    data = [(x,), model.example_inputs]
    levels = jq.rewrite(model, pipeline="int8-static", target=LIMITS, calibration=data)
    exact, got, integer = (
        np.asarray(XlaExecutable(levels[level])(x)[0]) for level in ("float", "qdq", "integer")
    )
    wanted = np.asarray(model.fn(model.params, x))
    np.testing.assert_allclose(exact, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    step = np.abs(wanted).max() / 127
    assert np.abs(integer - got).max() <= 2 * step
