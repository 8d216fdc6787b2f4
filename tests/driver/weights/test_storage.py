"""Bytes a value in the artifact, scales included, as the audit counts them."""

from __future__ import annotations

import numpy as np
import pytest

import jq
from jq.formats import Encoding, get_format
from jq.formats.tensor import QuantizedTensor

RNG = np.random.default_rng(0)


def bytes_per_value(params, shape, pipeline, **settings):
    x = np.ones((1, shape[0]), np.float32)
    model = jq.Model(lambda p, x: x @ p["w"], {"w": params}, (x,))
    audit = jq.compile(model, pipeline, settings=settings).audit()
    assert audit.verified, audit.warnings
    (weight,) = audit.weights
    assert audit.other_constant_bytes == 0
    return weight.stored_bytes / np.prod(shape)


LIMITS = [
    ("int8-weight-only", {}, (1024, 1024), 1.01),
    ("int8-weight-only", {}, (100, 36), 1.3),
    ("int4-weight-only", {"weights.scheme": "symmetric"}, (1024, 1024), 0.57),
    ("int4-weight-only", {}, (1024, 1024), 0.585),
    ("int3-weight-only", {"weights.block_size": 64}, (1024, 1024), 0.425),
    ("int3-weight-only", {}, (1024, 1024), 0.475),
    ("int2-weight-only", {"weights.block_size": 128}, (1024, 1024), 0.28),
    ("mxfp4-weight-only", {}, (1024, 1024), 0.54),
    ("mxint8-weight-only", {}, (1024, 1024), 1.04),
    ("fp8-weight-only", {}, (1024, 1024), 1.01),
    ("mxfp8-weight-only", {}, (1024, 1024), 1.04),
]


@pytest.mark.parametrize(("pipeline", "settings", "shape", "limit"), LIMITS, ids=str)
def test_pipelines(pipeline, settings, shape, limit):
    w = RNG.standard_normal(shape).astype(np.float32)
    assert bytes_per_value(w, shape, pipeline, **settings) <= limit


@pytest.mark.parametrize(
    ("name", "exact"),
    [("q4_k", 0.5625), ("q6_k", 0.8203125), ("q8_0", 1.0625), ("iq4_xs", 0.53125)],
)
def test_ggml(name, exact):
    shape = (1024, 1024)
    fmt = get_format(name)
    encoding = Encoding(name, shape, fmt.default_block(shape, 0))
    (size, dtype), *_ = fmt.storage(encoding).values()
    blocks = RNG.integers(-128, 128, size).astype(dtype)  # any bytes are blocks
    tensor = QuantizedTensor(encoding, {"blocks": blocks})
    assert bytes_per_value(tensor, shape, "float") == exact
