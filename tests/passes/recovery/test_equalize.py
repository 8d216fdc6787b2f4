"""Equalization: the float program stays what it is, to the bit; it is kept where outputs gain."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import jq
from jq.frontends.tracing.entry import trace
from jq.ir import Program
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline, prepare
from jq.passes.recovery import equalize
from jq.passes.recovery._product_inputs import find_inputs
from jq.passes.recovery.equalize import Equalize
from jq.planning.decisions import QuantPlan
from tests.passes.recovery.models import TARGET
from tests.reporting.report.test_suggest import pair
from tests.support.programs import evaluated

STATIC = load_pipeline("int8-static")


def equalized(model: jq.Model, **options: float) -> tuple[Program, Program, bool]:
    program = prepare(trace(model), STATIC, TARGET)
    copy, data = program.clone(), [[np.asarray(a) for a in call] for call in model.calibration]
    changed = Equalize(**options).run(
        copy, PassContext(QuantPlan((), {}), STATIC.settings, TARGET, data)
    )
    copy.verify()
    return program, copy, changed


def relu_pair(wide: int) -> jq.Model:
    """Convolution, bias, ReLU and pooling; then a window of 3 of all channels."""
    rng = np.random.default_rng(1)
    sizes = np.exp2(rng.integers(-wide, wide + 1, 8)).astype(np.float32)
    p = {
        "a": rng.standard_normal((3, 3, 4, 8)).astype(np.float32) * sizes,
        "bias": rng.standard_normal(8).astype(np.float32) * sizes,
        "b": rng.standard_normal((3, 3, 8, 5)).astype(np.float32) / sizes[:, None],
    }

    def f(p: Any, x: Any) -> Any:
        kinds = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, p["a"], (1, 1), "SAME", dimension_numbers=kinds)
        y = jax.nn.relu(y + p["bias"])
        y = jax.lax.reduce_window(y, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jax.lax.conv_general_dilated(y, p["b"], (1, 1), "SAME", dimension_numbers=kinds)

    data = [(rng.standard_normal((2, 6, 6, 4)).astype(np.float32),) for _ in range(3)]
    return jq.Model(f, p, data[0], calibration=data, evaluation=data)


def spectrum(wide: int) -> jq.Model:
    """The size of complex numbers, whose parts are halves of one convolution; then 1x1."""
    rng = np.random.default_rng(2)
    sizes = np.exp2(rng.integers(-wide, wide + 1, 8)).astype(np.float32)
    p = {
        "a": rng.standard_normal((3, 3, 4, 16)).astype(np.float32) * np.tile(sizes, 2),
        "b": rng.standard_normal((1, 1, 8, 5)).astype(np.float32) / sizes[:, None],
    }

    def f(p: Any, x: Any) -> Any:
        kinds = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, p["a"], (1, 1), "SAME", dimension_numbers=kinds)
        y = jax.numpy.sqrt(y[..., :8] ** 2 + y[..., 8:] ** 2)
        return jax.lax.conv_general_dilated(y, p["b"], (1, 1), "SAME", dimension_numbers=kinds)

    data = [(rng.standard_normal((2, 6, 6, 4)).astype(np.float32),) for _ in range(3)]
    return jq.Model(f, p, data[0], calibration=data, evaluation=data)


MODELS = {"depthwise": pair(4), "relu": relu_pair(6), "spectrum": spectrum(6)}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_outputs_gain_and_the_float_program_is_unchanged(model: jq.Model) -> None:
    program, copy, changed = equalized(model)
    assert changed
    (x,) = model.example_inputs
    np.testing.assert_array_equal(evaluated(copy, x)[0], evaluated(program, x)[0])
    db = [
        jq.compare(model, pipeline="int8-static", settings={"recovery": names}).outputs[0].sqnr_db
        for names in (False, ["equalize"])
    ]
    assert db[1] > max(30.0, db[0] + 10)  # codes of 8 bits have some 40 where channels are alike


def test_numpy_finds_the_ends_of_few_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits are those of a program that finds them."""
    model, texts, found = relu_pair(2), list[str](), []
    calls: Any = model.calibration
    program = prepare(trace(model), STATIC, TARGET)

    def seen(run: Program) -> XlaExecutable:
        texts.append(run.text())
        return XlaExecutable(run)

    monkeypatch.setattr(equalize, "XlaExecutable", seen)
    for most in (0, equalize.NUMBERS):
        monkeypatch.setattr(equalize, "NUMBERS", most)
        ends, _ = equalize.extents_of(program, ["a", "b"], calls)
        found.append({name: np.array(own).tolist() for name, own in ends.items()})
    assert found[0] == found[1] and found[0].keys() == {"a", "b"}
    assert ["stablehlo.reduce(" in text for text in texts] == [True, False]


def test_even_channels_are_left_alone() -> None:
    program, copy, changed = equalized(pair(0))
    assert not changed and copy.text() == program.text()


def test_a_gain_that_is_not_reached() -> None:
    assert equalized(relu_pair(2))[2] and not equalized(relu_pair(2), gain=1e6)[2]


@pytest.mark.parametrize("step", ["gelu", "read elsewhere"])
def test_what_cannot_be_is_left_alone(step: str) -> None:
    model = pair(4)
    kinds = ("NHWC", "HWIO", "NHWC")

    def f(p: Any, x: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, p["d"], (1, 1), "SAME", dimension_numbers=kinds, feature_group_count=8
        )
        y = jax.nn.gelu(y) if step == "gelu" else y
        z = jax.lax.conv_general_dilated(y, p["w"], (1, 1), "SAME", dimension_numbers=kinds)
        return z if step == "gelu" else (z, y)

    model = jq.Model(f, model.params, model.example_inputs, calibration=model.calibration)
    assert not equalized(model)[2]


def test_ranges_bring_their_factors(tmp_path: Any) -> None:
    """Ranges that were observed on the scaled program go with its factors, through a file."""
    model, settings = pair(4), {"recovery": ["equalize"]}
    jq.calibrate(model, pipeline="int8-static", settings=settings).save(tmp_path / "ranges.json")
    compiled = jq.compile(model, "int8-static", ranges=tmp_path / "ranges.json", settings=settings)
    assert jq.compare(model, compiled).outputs[0].sqnr_db > 30


def test_auto_equalizes() -> None:
    model = pair(4)
    found = jq.compile(model, "auto")
    assert jq.compare(model, found).outputs[0].sqnr_db > 30


def test_channels_that_are_seldom_heard_are_not_cut_off() -> None:
    """Some channels were silent, or nearly so, in all of the data but one call."""
    model, rng = relu_pair(6), np.random.default_rng(3)
    a = model.params["a"].copy()
    a[:, :, :3, :2] = 0  # two channels that hear the last input alone
    a[:, :, 3, :2] = np.abs(a[:, :, 3, :2]) * 4

    def call(loud: float) -> tuple[np.ndarray]:
        x = rng.standard_normal((2, 6, 6, 4)).astype(np.float32)
        x[..., 3] = loud * np.abs(x[..., 3])
        return (x,)

    bias = np.where(np.arange(8) < 2, 0, model.params["bias"]).astype(np.float32)
    params = model.params | {"a": a, "bias": bias}
    quiet = [call(1.0 if i == 13 else 1e-5) for i in range(16)]
    rare = jq.Model(model.fn, params, quiet[0], calibration=quiet, evaluation=[call(1.0)])
    assert jq.compare(rare, pipeline="int8-static").outputs[0].sqnr_db > 25


@pytest.mark.parametrize("kind", ["a square of one number", "a quotient of itself"])
def test_what_reads_a_value_twice(kind: str) -> None:
    """Both operands of an op are one value: a factor on it counts twice, or not at all."""
    rng = np.random.default_rng(4)
    p = {name: rng.standard_normal((8, 8)).astype(np.float32) for name in "ab"}
    p["e"] = np.float32(1.5)

    def f(p: Any, x: Any) -> Any:
        y = x @ p["a"]
        if kind[2:] == "quotient of itself":
            return jax.numpy.maximum(jax.lax.div(y, y), 0) @ p["b"]
        same = jax.numpy.broadcast_to(p["e"], y.shape)
        return jax.numpy.sqrt(y * y + jax.lax.mul(same, same)) @ p["b"]

    x = rng.standard_normal((16, 8)).astype(np.float32)
    program = prepare(trace(jq.Model(f, p, (x,))), STATIC, TARGET)
    copy = program.clone()
    (last,) = [i for i in find_inputs(copy) if i.name == "b"]
    last.scale(copy, np.where(np.arange(8) % 2, 4.0, 0.25))
    for want, got in zip(evaluated(program, x), evaluated(copy, x), strict=True):
        np.testing.assert_array_equal(got, want)
