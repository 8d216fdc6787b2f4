"""On a trained network, no method makes the error on the calibration data larger but for noise."""

from functools import cache
from importlib import import_module

import numpy as np
import pytest

from jq.frontends.tracing.entry import trace
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import PassContext, run_all
from jq.passes.pipeline import load_pipeline, make_plan, prepare
from jq.planning.calibration.run import calibrate
from jq.planning.decisions import QuantPlan
from tests.passes.recovery.models import TARGET

pytest.importorskip("sklearn")
NOISE = 0.5  # dB: what other codes of the same quality make of it


@cache
def source():
    model = import_module("jq.models.zoo.digits_cnn").build()
    program, data = trace(model), [list(x) for x in model.calibration()[:2]]
    run = XlaExecutable(program)
    return program, data, [run(*x)[0] for x in data]


@cache
def sqnr(recovery, fmt="int8", granularity="per-channel", pipeline="int8-static"):
    """Signal to noise of the `qdq` level on the calibration data, in dB."""
    program, data, reference = source()
    chosen = {"recovery": recovery, "weights.format": fmt, "weights.granularity": granularity}
    pipeline = load_pipeline(pipeline, chosen | {"min_elements": 1})
    before = PassContext(QuantPlan((), {}), pipeline.settings, TARGET, data)
    prepared = prepare(program, pipeline, TARGET, cx=before)
    static = pipeline.settings.activations.mode == "static"
    plan = make_plan(prepared, pipeline, TARGET, calibrate(prepared, data) if static else None)
    cx = PassContext(plan, pipeline.settings, TARGET, data)
    run_all(pipeline.passes["qdq"], prepared, cx)
    run = XlaExecutable(prepared)
    noise = sum(((run(*x)[0] - r) ** 2).sum() for x, r in zip(data, reference, strict=True))
    return 10 * np.log10(sum((r**2).sum() for r in reference) / noise)


METHODS = ("gptq", "clip", "bias-correction", "rotate", "rotate-online")


@pytest.mark.parametrize("method", METHODS)
def test_int4_weights(method):
    assert sqnr((method,), "int4") > sqnr(False, "int4") - NOISE


@pytest.mark.parametrize("method", ["gptq", "clip", "bias-correction"])
def test_what_rounds_better_is_better(method):
    assert sqnr((method,), "int4") > sqnr(False, "int4") + 1


@pytest.mark.parametrize("method", ["smooth", "gptq", "bias-correction"])
def test_int8(method):
    assert sqnr((method,)) > sqnr(False) - NOISE


def test_all_together():
    together = ("gptq", "clip", "bias-correction")
    assert sqnr(together, "int4") > sqnr(("gptq",), "int4") - NOISE
