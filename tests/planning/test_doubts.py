"""Warnings on calibration data that no range can be chosen from."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

import jq
from jq.base.errors import UserError

rng = np.random.default_rng(0)
P = {
    "a": {"kernel": rng.standard_normal((8, 8)).astype(np.float32)},
    "b": {"kernel": rng.standard_normal((8, 4)).astype(np.float32)},
}


def forward(p, x):
    return (x @ p["a"]["kernel"]).clip(0) @ p["b"]["kernel"]


def told(data, pipeline="int8-static"):
    """Warnings of a plan with calibration data made of a sample by `data`."""
    samples = [data(rng.standard_normal((3, 8)).astype(np.float32)) for _ in range(3)]
    batches = [(x,) for x in samples]
    model = jq.Model(forward, P, batches[0], calibration=batches)
    return jq.plan(model, pipeline=pipeline, settings={"recovery": False}).doubts


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (np.zeros_like, "never vary at a/kernel, b/kernel"),
        (lambda x: np.full_like(x, 0.5), "never vary at a/kernel"),
        (lambda x: np.full_like(x, 1e-41), "never vary at a/kernel, b/kernel"),
        (lambda x: x * np.float32(1e-37), "are so small at a/kernel, b/kernel"),
        (lambda x: x * np.float32(1e36), "exceed 2e+19 at a/kernel, b/kernel"),
    ],
    ids=["zeros", "halves", "denormals", "tiny", "huge"],
)
def test_what_cannot_calibrate_is_named(data, said):
    (warning,) = told(data)
    assert warning.startswith(f"the calibration data {said}")
    assert warning.endswith("give data like those that the model will get")


@pytest.mark.parametrize("pipeline", ["int8-static", "int8x16-static", "int8-static-integer-only"])
def test_sound_data_are_not_doubted(pipeline):
    for scale in (2.0**-40, 1, 2.0**40):
        assert told(lambda x, s=scale: x * np.float32(s), pipeline) == ()
    assert told(np.zeros_like, "int8-dynamic") == ()


@pytest.mark.parametrize(("rows", "told"), [([0, 0, 0], True), ([0, 1, 1], False), ([0], False)])
def test_one_sample_repeated(rows, told, caplog):
    """Each layer's values vary, so that a range can be had, which is of too few."""
    x = rng.standard_normal((2, 8)).astype(np.float32)[rows]
    for batches in ([(x,)], [(x[i : i + 1],) for i in range(len(x))]):
        caplog.clear()
        jq.plan(jq.Model(forward, P, batches[0], calibration=batches), pipeline="int8-static")
        assert ("one sample, repeated" in caplog.text) == told


def test_edges_are_named_too():
    (warning,) = told(lambda x: np.full_like(x, 0.5), "int8-static-integer-only")
    assert "never vary at" in warning


def test_a_single_number_seen_once_is_not_doubted():
    w = {"c": {"kernel": np.ones((1, 2), np.float32)}}
    for count, expected in ((1, 0), (2, 1)):
        batches = [(np.full((1, 1), 0.5, np.float32),)] * count
        model = jq.Model(lambda p, x: x @ p["c"]["kernel"], w, batches[0], calibration=batches)
        plan = jq.plan(model, pipeline="int8-static", settings={"recovery": False})
        assert len(plan.doubts) == expected


def test_compile_warns_and_keeps_the_warning(caplog):
    batches = [(np.full((3, 8), 0.5, np.float32),)]
    model = jq.Model(forward, P, batches[0], calibration=batches)
    with caplog.at_level(logging.WARNING, "jq"):
        compiled = jq.compile(model, "int8-static", settings={"recovery": False})
    said = "the calibration data never vary at a/kernel: "
    assert any(said in record.message for record in caplog.records)
    assert any(said in note for note in compiled.manifest.notes)


def test_plan_and_explain_show_it():
    batches = [(np.full((3, 8), 0.5, np.float32),)]
    model = jq.Model(forward, P, batches[0], calibration=batches)
    plan = jq.plan(model, pipeline="int8-static", settings={"recovery": False})
    said = "warning: the calibration data never vary at a/kernel: "
    assert said in str(plan) and plan.to_dict()["doubts"] == list(plan.doubts)
    explained = jq.explain(model, pipeline="int8-static", settings={"recovery": False})
    assert said in explained.notes()[0] and explained["doubts"] == list(plan.doubts)


def one_channel(x):
    return np.where(np.arange(8) == 3, np.float32(0.5), x)


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("data", [one_channel, np.rint, lambda x: x], ids=["channel", "whole", "x"])
def test_what_can_calibrate(data, samples):
    """One channel that never varies, whole numbers, one sample."""
    batches = [(data(rng.standard_normal((3, 8)).astype(np.float32)),) for _ in range(samples)]
    model = jq.Model(forward, P, batches[0], calibration=batches)
    assert jq.plan(model, pipeline="int8-static", settings={"recovery": False}).doubts == ()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_by_name(number):
    x = np.full((3, 8), number, np.float32)
    model = jq.Model(forward, P, (x,), calibration=[(x,)])
    with pytest.raises(UserError, match="a/kernel"):
        jq.plan(model, pipeline="int8-static", settings={"recovery": False})


@pytest.mark.parametrize(("size", "told"), [(0.01, True), (1.0, False), (100.0, False)])
def test_example_inputs_beyond_the_calibration_data(size, told, caplog):
    x = rng.standard_normal((3, 8)).astype(np.float32)
    batches = [(x[i : i + 1].repeat(3, 0) * np.float32(size),) for i in range(3)]
    model = jq.Model(forward, P, (x,), calibration=batches)
    jq.plan(model, pipeline="int8-static", settings={"recovery": False})
    said = "the example inputs reach .* the calibration data .* is clipped"
    assert bool(re.search(said, caplog.text)) == told
