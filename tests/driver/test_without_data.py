"""A pipeline with calibrated ranges, and nothing to calibrate on."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from tests.support.targets import LIMITS

pytestmark = pytest.mark.usefixtures("quick_xla")


def model() -> jq.Model:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 32)).astype(np.float32)
    x = rng.standard_normal((4, 64)).astype(np.float32)
    return jq.Model(lambda p, x: x @ p["w"], {"w": weight}, (x,))


def test_static_ranges_without_data_are_refused():
    for function in (jq.compile, jq.plan, jq.explain, jq.rewrite):
        with pytest.raises(UserError, match="need calibration data .*allow-dynamic"):
            function(model(), pipeline="int8-static")


def test_ranges_are_found_at_run_time_where_that_is_allowed(caplog):
    m = model()
    with caplog.at_level(logging.WARNING, "jq"):
        compiled = jq.compile(m, "int8-static", allow_dynamic=True)
    (op,) = compiled.plan.ops
    assert op.decision == "integer" and op.operands[0].kind == "dynamic"
    assert caplog.text.count("ranges of activations are found at run time") == 1
    assert caplog.text.count("without calibration data") == 1
    assert any("found at run time" in note for note in compiled.manifest.notes)
    (x,) = m.example_inputs
    # Half a step of each: an 8-bit code a row, whose range holds 0, and one a column.
    w, ends = m.params["w"], (np.maximum(x.max(1), 0), np.minimum(x.min(1), 0))
    of_x, of_w = (ends[0] - ends[1])[:, None] / 255 / 2, np.abs(w).max(0) / 127 / 2
    most = np.abs(x).sum(1)[:, None] * of_w + of_x * np.abs(w).sum(0) + len(w) * of_x * of_w
    assert (np.abs(np.asarray(compiled(x)) - x @ w) <= most * (1 + 2.0**-16)).all()


@pytest.mark.parametrize(
    ("pipeline", "settings"),
    [("int8-static", {"activations.mode": "static"}), ("int8-static-integer-only", None)],
)
def test_what_cannot_do_without_is_refused(pipeline, settings):
    with pytest.raises(UserError, match="need calibration data"):
        jq.compile(model(), pipeline, settings=settings, allow_dynamic=True)
    with pytest.raises(UserError, match="need calibration data"):
        jq.calibrate(model())


def test_a_device_that_has_static_ranges_alone_always_needs_data():
    with pytest.raises(UserError, match="need calibration data") as told:
        jq.compile(model(), "int8-static", LIMITS, allow_dynamic=True)
    assert "int8-dynamic" not in str(told.value)  # it has none of these


def test_data_of_a_model_are_made_only_where_they_are_read():
    def broken():
        raise OSError("no such folder")

    m = dataclasses.replace(model(), calibration=broken)
    assert jq.plan(m, pipeline="int8-dynamic", settings={"recovery": False}).ops
    for pipeline in ("int8-dynamic", "int8-static"):
        with pytest.raises(
            UserError, match="the data that were given failed: OSError: no such folder"
        ):
            jq.plan(m, pipeline=pipeline)
