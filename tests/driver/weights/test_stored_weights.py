"""Weights that come quantized: what plans and audits say of them, and what is computed."""

from __future__ import annotations

import numpy as np
import pytest

import jq
from jq.formats import Encoding, get_format
from jq.formats.tensor import QuantizedTensor
from jq.ir.oracle.xla import XlaExecutable

K, N = 256, 64


def stored(name: str, block: tuple[int, int], scheme: str = "symmetric") -> QuantizedTensor:
    w = np.random.default_rng(0).standard_normal((N, K)).astype(np.float32)
    encoding = Encoding(name, w.shape, block, scheme)
    return QuantizedTensor(encoding, get_format(name).encode(w, encoding))


def model_of(tensor: QuantizedTensor) -> jq.Model:
    x = np.random.default_rng(1).standard_normal((5, K)).astype(np.float32)
    return jq.Model(lambda p, x: x @ p["w"].T, {"w": tensor}, (x,))


INTEGER = [
    ("int8", (1, 0), "symmetric"),
    ("int8", (1, 0), "asymmetric"),
    ("int4", (1, 32), "symmetric"),
    ("int4", (1, 32), "asymmetric"),
    ("q8_0", (1, 32), "symmetric"),
    ("q4_0", (1, 32), "symmetric"),
    ("q4_1", (1, 32), "symmetric"),
    ("q4_k", (1, 256), "symmetric"),
    ("q6_k", (1, 256), "symmetric"),
]


@pytest.mark.parametrize(("name", "block", "scheme"), INTEGER)
def test_codes_enter_integer_products(name, block, scheme):
    tensor = stored(name, block, scheme)
    model = model_of(tensor)
    levels = jq.rewrite(model, pipeline="int8-dynamic")
    (op,) = jq.plan(model, pipeline="int8-dynamic").ops
    assert op.decision == "integer" and name in op.to_dict()["weights"]
    assert "(stored)" in op.to_dict()["weights"]
    assert levels["integer"].encodings["w"]["format"] == name
    (x,) = model.example_inputs
    (got,) = XlaExecutable(levels["integer"], strict=True)(x)
    # The weight is exact: what differs is the rounding of the activations, half a step of each row.
    step = (np.maximum(x.max(1), 0) - np.minimum(x.min(1), 0)) / 255
    w = tensor.decode()
    bound = 0.51 * step[:, None] * np.abs(w).sum(1)[None] + 1e-4
    assert (np.abs(got - x @ w.T) <= bound).all()


@pytest.mark.parametrize("pipeline", ["float", "int4-weight-only", "int8-dynamic"])
def test_a_format_without_integers_is_weight_only(pipeline):
    (op,) = jq.plan(model_of(stored("mxfp8_e4m3", (1, 32))), pipeline=pipeline).ops
    assert op.decision == "weight-only"
    assert op.to_dict()["weights"] == "mxfp8_e4m3 per-block symmetric (stored)"
    if pipeline == "int8-dynamic":
        assert op.reason == "mxfp8_e4m3 has no integer product"


def test_audit_counts_them_as_what_they_stand_for():
    compiled = jq.compile(model_of(stored("q4_k", (1, 256))), "float")
    audit = compiled.audit()
    assert audit.verified, audit.warnings
    (weight,) = audit.weights
    assert (weight.name, weight.format, weight.shape) == ("w", "q4_k", (N, K))
    assert weight.stored_bytes / (N * K) == 0.5625
    assert audit.float_parameter_bytes == 4 * N * K
