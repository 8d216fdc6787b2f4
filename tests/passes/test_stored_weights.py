"""Weights that come quantized keep their bytes in every pipeline."""

from __future__ import annotations

import numpy as np
import pytest

import jq
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.formats import Encoding, get_format
from jq.formats.tensor import QuantizedTensor


def stored(name: str, shape: tuple[int, ...], block: tuple[int, ...]) -> QuantizedTensor:
    w = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    encoding = Encoding(name, shape, block)
    return QuantizedTensor(encoding, get_format(name).encode(w, encoding))


@pytest.mark.parametrize("pipeline", ["float", "int8-weight-only", "int8-dynamic"])
@pytest.mark.parametrize(("name", "block"), [("int8", (0, 1)), ("q8_0", (1, 32))])
def test_float_passes_and_plan_leave_them(pipeline, name, block):
    tensor = stored(name, (64, 64), block)
    model = jq.Model(lambda p, x: x @ p["w"], {"w": tensor}, (np.ones((2, 64), np.float32),))
    job = prepare_job(model, Request(pipeline, "llvm-cpu"))
    parts = {f"w:{part}": array for part, array in tensor.parts.items()}
    assert job.program.weights.keys() == parts.keys()
    assert all(np.array_equal(job.program.weights[n], parts[n]) for n in parts)


@pytest.mark.parametrize("pipeline", ["int4-weight-only", "int2-weight-only", "int4-dynamic"])
def test_weights_whose_scales_float16_lacks_are_told_of(pipeline, caplog):
    """All of them; a part of a weight may be nothing beside the rest."""
    weight = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    inputs = (np.ones((4, 64), np.float32),)
    rest = weight * np.where(np.arange(64) < 32, 1e-9, 1).astype(np.float32)[:, None]

    def rewritten(w):
        model = jq.Model(lambda p, x: x @ p, w, inputs)
        return jq.rewrite(model, pipeline=pipeline, settings={"recovery": False})

    rewritten(rest)
    rewritten(weight * 0)
    assert not caplog.records
    rewritten(weight * np.float32(1e-9))
    assert "stored as zeros, too small for scales of float16" in caplog.text
