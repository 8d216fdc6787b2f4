"""The int8 KV cache: recognised, updated as codes, and what it computes."""

from __future__ import annotations

import importlib
from functools import partial

import jax
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.formats import Encoding, get_format
from scripts.checks.cache import decode, whole
from tests.support.programs import evaluated

gpt = importlib.import_module("jq.models.zoo.gpt")
INT8 = {"kv_cache.format": "int8"}
LAYERS, CONTEXT, HEADS, HIDDEN = 2, 80, 4, 32
PROMPT = [5, 9, 33]


@pytest.fixture(scope="module")
def model():
    return gpt.build(layers=LAYERS, hidden=HIDDEN, heads=HEADS, vocabulary=64, context=CONTEXT)


def test_greedy_decoding_has_the_bits_of_the_whole_sequence(model):
    """`scripts/check.py cache` does the same with the full model."""
    # In bfloat16 matrix tiles and single rows differ by roundings (docs/internals/kernels.md).
    exact = {"attention_precision": "float32"}
    step = jq.compile(model, pipeline="int8-dynamic", settings=INT8 | exact)
    shape = (LAYERS, CONTEXT, HEADS, HIDDEN // HEADS)
    tokens, logits = decode(step, shape, PROMPT, 64)
    inputs = (np.array(tokens, np.int32),)
    once = jq.Model(partial(whole, HEADS), model.params, inputs)
    assert len(tokens) == len(PROMPT) + 63 and len(set(tokens)) > 10
    compiled = jq.compile(once, pipeline="int8-dynamic", settings=exact)
    np.testing.assert_array_equal(compiled(*inputs), logits)


def test_update_writes_the_codes_of_the_format_and_keeps_the_others():
    def step(p, x, position, cache):
        cache = jax.lax.dynamic_update_slice(cache, x[None] @ p["w"], (position, 0))
        return (cache @ p["w"]).sum(axis=0), cache

    w = np.eye(8, dtype=np.float32)
    x = np.linspace(-3, 5, 8, dtype=np.float32)
    shape = jax.ShapeDtypeStruct((4, 8), np.float32)
    small = jq.Model(step, {"w": w}, (x, np.int32(0), shape))
    program = jq.rewrite(small, pipeline="float", settings=INT8)["qdq"]
    assert [i.name for i in program.inputs] == ["arg0", "arg1", "arg2:codes", "arg2:scale"]
    codes = np.arange(32, dtype=np.int8).reshape(4, 8)
    scale = np.full((4, 1), 0.5, np.float32)
    _, new, scales = evaluated(program, x, np.int32(2), codes, scale)
    parts = get_format("int8").encode(x, Encoding("int8", (8,), (0,)))
    assert new.tolist() == [*codes[:2].tolist(), parts["codes"].tolist(), codes[3].tolist()]
    assert scales.ravel().tolist() == [0.5, 0.5, parts["scale"].item(), 0.5]
    text = program.text()
    assert text.count('composite "jq.quantize_dynamic"') == 1
    assert "dynamic_update_slice" in text and "tensor<4x8xf32>, tensor<1x8xf32>" not in text


@pytest.mark.parametrize(
    ("fn", "settings", "message"),
    [
        (lambda p, x: x @ p["w"], INT8, "no input is updated"),
        (lambda p, x: x, {"kv_cache.format": "int4"}, "cannot be int4"),
    ],
)
def test_refusals(fn, settings, message):
    model = jq.Model(fn, {"w": np.eye(8, dtype=np.float32)}, (np.ones((2, 8), np.float32),))
    with pytest.raises(UserError, match=message):
        jq.rewrite(model, settings=settings)
