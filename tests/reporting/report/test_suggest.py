"""The verdict on outputs far from the float model's, and the rule that is suggested."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jq
from jq.base.errors import FarFromFloat
from jq.driver.comparison.result import LayerError
from jq.reporting.measuring import floor
from jq.reporting.measuring.glance import at_a_glance
from jq.reporting.report.suggest import suggestions, warning

pytestmark = pytest.mark.usefixtures("quick_xla")

CHANNELS = 8
PRODUCTS = ("int8 x int8", "int16 x int8")


def pair(decades: float) -> jq.Model:
    """A depthwise convolution whose channels differ by so many decades, then 1x1."""
    rng = np.random.default_rng(0)
    sizes = np.logspace(-decades / 2, decades / 2, CHANNELS)
    params = {
        "d": (rng.standard_normal((3, 3, 1, CHANNELS)) * sizes).astype(np.float32),
        "w": (rng.standard_normal((1, 1, CHANNELS, 8)) / sizes[:, None]).astype(np.float32),
    }

    def convolve(x: Any, w: Any, groups: int) -> Any:
        kinds = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=kinds, feature_group_count=groups
        )

    def f(p: Any, x: Any) -> Any:
        return convolve(convolve(x, p["d"], CHANNELS), p["w"], 1)

    data = [(rng.standard_normal((2, 6, 6, CHANNELS)).astype(np.float32),) for _ in range(3)]
    return jq.Model(f, params, data[0], calibration=data, evaluation=data)


PLAIN = {"recovery": ["gptq"]}


def said(model: jq.Model, pipeline: str) -> str:
    compiled = jq.compile(model, pipeline, settings=PLAIN)
    found = at_a_glance(compiled)
    assert found is not None and found.found is not None
    return warning(found.found, compiled)


def test_a_ruined_output_is_warned_of_and_auto_does_better() -> None:
    text = said(pair(4), "int8-static")
    assert "w makes most of the noise" in text
    assert re.search(r"itself, on \d samples\): give --rule 'w: float'", text)
    assert not said(pair(0), "int8-static")
    assert not said(pair(4), "auto")


def test_what_has_no_floats_is_equalized() -> None:
    """The op is named where no step scales its channels."""
    model, pipeline = pair(4), "int8-static-integer-only"
    with pytest.warns(FarFromFloat, match=r"w makes most of the noise \(.*s\)$"):
        jq.compile(model, pipeline, settings=PLAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jq.compile(model, pipeline)


def test_wider_weights_do_not_help_ruined_activations() -> None:
    assert "--rule 'w: float'" in said(pair(4), "mxfp4")


def test_python_warns_too(tmp_path: Path) -> None:
    model = pair(4)
    with pytest.warns(FarFromFloat, match="the outputs are far .* w makes most of the noise"):
        compiled = jq.compile(model, "int8-static", settings=PLAIN)
    with pytest.warns(FarFromFloat, match="w makes most of the noise"):
        jq.compare(model, compiled)
    compiled.save(tmp_path / "out")
    with pytest.warns(FarFromFloat, match="--rule 'w: float'"):
        jq.compare(model, tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jq.compare(pair(0), jq.compile(pair(0), "int8-static"))


def _ruined(x: np.ndarray, w: np.ndarray, pipeline: str) -> list[str]:
    model = jq.Model(lambda p, x: x @ p["w"], {"w": w}, (x,))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        jq.compile(model, pipeline)
        jq.compile(model, pipeline, measure=False)
    return [str(each.message) for each in told if each.category is FarFromFloat]


def test_python_warns_of_what_is_not_calibrated() -> None:
    """Dynamic and weight-only pipelines, on the example inputs."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 64)).astype(np.float32)
    w = rng.standard_normal((64, 32)).astype(np.float32)
    spread = np.logspace(-4, 4, 64, dtype=np.float32)
    for pipeline in ("int8-dynamic", "int8-weight-only"):
        assert not _ruined(x, w, pipeline)
    (said,) = _ruined(x * spread, w / spread[:, None], "int8-dynamic")
    assert "dot_general" in said or "w makes most of the noise" in said
    assert "--rule 'w: float'" in said
    (said,) = _ruined(x * spread, w / spread[:, None], "int8-weight-only")
    assert "w makes most of the noise" in said


def test_data_that_were_used_are_what_is_measured() -> None:
    """Example inputs may be zeros, of which nothing is lost."""
    spread = np.logspace(-4, 4, 64, dtype=np.float32)
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32) * spread
    w = np.random.default_rng(2).standard_normal((64, 32)).astype(np.float32) / spread[:, None]

    model = jq.Model(lambda p, x: x @ p["w"], {"w": w}, (0 * x,), calibration=[(x,)])
    with pytest.warns(FarFromFloat, match="most of the noise"):
        jq.compile(model, "int8-dynamic", settings={"recovery": "gptq"})


def test_what_takes_long_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "WORK", 1)
    x, w = np.ones((4, 64), np.float32), np.logspace(-4, 4, 64, dtype=np.float32)
    assert not _ruined(x / w, np.outer(w, x[0]), "int8-weight-only")


def test_outputs_below_the_floor_are_named() -> None:
    """One output of two is good, and the other one is not."""
    far, near = pair(4), pair(0)

    def two(p: Any, x: Any) -> Any:
        return {"far": far.fn(p["far"], x), "near": near.fn(p["near"], x)}

    params = {"far": far.params, "near": near.params}
    model = jq.Model(two, params, far.example_inputs, calibration=far.calibration)
    with pytest.warns(FarFromFloat, match=r"1 of 2 outputs \(.*far.*\) are far from the float"):
        jq.compile(model, "int8-static", settings=PLAIN)


@pytest.mark.parametrize(
    ("db", "products", "integer_only", "rules"),
    [
        (30.0, PRODUCTS, False, ["w: activations.format=int16"]),
        (30.0, PRODUCTS, True, ["w: activations.format=int16"]),
        (30.0, PRODUCTS[:1], False, ["w: float"]),
        (30.0, PRODUCTS[:1], True, []),
        (5.0, PRODUCTS, False, ["w: float"]),
        (45.0, PRODUCTS, False, []),
    ],
)
@pytest.mark.parametrize("pipeline", ["int8-static", "int8-dynamic"])
def test_16_bits_where_they_help(
    pipeline: str, db: float, products: tuple[str, ...], integer_only: bool, rules: list[str]
) -> None:
    plan = jq.plan(pair(0), pipeline=pipeline)
    layer = LayerError("w", "convolution", db, 1.0, 0.0, db, 1.0, 0.0)
    layers = [layer, replace(layer, name="d", isolated_sqnr_db=50.0)]
    assert [s.rule for s in suggestions(layers, plan, integer_only, products)] == rules


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0.01, "of what first reads .* is beyond the range of the calibration data, .* like these"),
        (100.0, "what first reads .* fills little of the range of the calibration data"),
        (1.0, ""),
    ],
)
def test_data_that_are_unlike_the_calibration_data(size: float, said: str) -> None:
    rng = np.random.default_rng(3)
    params = {n: rng.standard_normal((16, 16)).astype(np.float32) for n in ("first", "second")}
    data = [(rng.standard_normal((8, 16)).astype(np.float32),) for _ in range(4)]

    def f(p: Any, x: Any) -> Any:
        return jax.nn.relu(x @ p["first"]) @ p["second"]

    calibration = [(x * np.float32(size),) for (x,) in data]
    model = jq.Model(f, params, data[0], calibration=calibration, evaluation=data)
    compiled = jq.compile(model, "int8-static")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        jq.compare(model, compiled)
    (found,) = [str(w.message) for w in told if w.category is FarFromFloat] or [""]
    assert re.search(said, found) if said else not found
    glance = at_a_glance(compiled).found  # `jaxq compile` says it at once
    assert glance is not None
    assert re.search(said, warning(glance, compiled))
