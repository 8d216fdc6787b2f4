"""A rule that keeps one of several ops on a weight float: that op alone is exact."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jq

TABLE = np.random.default_rng(0).standard_normal((80, 64)).astype(np.float32)
IDS = np.array([[1, 79, 3]], np.int32)


def fn(p, ids):
    x = p["table"][ids]
    return x, jnp.tanh(x) @ p["table"].T


MODEL = jq.Model(fn, {"table": TABLE}, (IDS,))


@pytest.mark.parametrize("pipeline", ["int8-dynamic", "int4-weight-only"])
@pytest.mark.parametrize("kept", ["gather", "dot_general"])
def test_the_op_of_the_rule_is_float(pipeline, kept):
    settings = {"min_elements": 1}
    compiled = jq.compile(MODEL, pipeline, settings=settings, rules=[f"{kept}: float"])
    rows, scores = (np.asarray(y) for y in compiled(IDS))
    exact_scores = np.tanh(rows) @ TABLE.T
    assert np.array_equal(rows, TABLE[IDS]) == (kept == "gather")
    assert (np.abs(scores - exact_scores).max() < 1e-4) == (kept == "dot_general")
    audit = compiled.audit()
    assert audit.verified
    assert audit.warnings == ("table is stored in f32 besides: a rule keeps it float",)
    (weight,) = audit.weights
    # What is only looked up is int8 in both pipelines.
    assert weight.format == ("int8" if kept == "dot_general" else pipeline.partition("-")[0])
    assert weight.stored_bytes > weight.float_bytes
