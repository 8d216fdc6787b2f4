"""The int8 KV cache: recognised, updated as codes, and what it computes."""

from __future__ import annotations

import importlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.backend.xla import XlaExecutable
from jq.errors import UserError
from jq.formats import Encoding, get_format

gpt = importlib.import_module("jq.models.gpt")
INT8 = {"kv_cache.format": "int8"}
LAYERS, CONTEXT, HEADS, HIDDEN = 2, 80, 4, 32
PROMPT = [5, 9, 33]


@pytest.fixture(scope="module")
def model():
    return gpt.build(layers=LAYERS, hidden=HIDDEN, heads=HEADS, vocabulary=64, context=CONTEXT)


def empty():
    shape = (LAYERS, CONTEXT, HEADS, HIDDEN // HEADS)
    return {"codes": np.zeros(shape, np.int8), "scale": np.ones((*shape[:-1], 1), np.float32)}


def without_cache(p, tokens):
    """The whole sequence at once; K and V pass through the int8 of a token and head."""
    table = p["embed"]["tokens"]["embedding"]
    x = table[tokens] * math.sqrt(HIDDEN) + p["embed"]["positions"]["embedding"][: len(tokens)]
    seen = jnp.tril(jnp.ones((len(tokens), len(tokens)), bool))
    for i in range(LAYERS):
        layer = jax.tree.map(lambda a, i=i: a[i], p["layers"])
        a = layer["attention"]
        y = gpt.rms_norm(a["norm"], x)
        q, k, v = (
            (y @ a[n]["kernel"]).reshape(len(tokens), HEADS, -1) for n in ("query", "key", "value")
        )
        k, v = (jq.fake_quant(t, granularity="per-token") for t in (k, v))
        scores = jnp.einsum("shd,thd->hst", q, k) / math.sqrt(HIDDEN // HEADS)
        weights = jax.nn.softmax(jnp.where(seen, scores, gpt.MASKED), axis=-1)
        context = jnp.einsum("hst,thd->shd", weights, v).reshape(x.shape)
        x = x + context @ a["output"]["kernel"]
        x = x + gpt.mlp(layer["mlp"], x)
    return gpt.rms_norm(p["norm"], x) @ table.T


def test_greedy_decoding_has_the_bits_of_the_whole_sequence(model):
    """`scripts/check_cache.py` does the same with the full model."""
    compiled = jq.compile(model, pipeline="int8-dynamic", settings=INT8)
    caches, pending, logits = [empty(), empty()], list(PROMPT), []
    tokens = []
    for position in range(len(PROMPT) + 63):
        tokens.append(pending.pop(0))
        row, *caches = compiled(np.array(tokens[-1:], np.int32), np.int32(position), *caches)
        logits.append(np.array(row[-1]))
        pending = pending or [int(logits[-1].argmax())]
    assert [c["codes"].dtype for c in caches] == [np.int8, np.int8]
    inputs = (np.array(tokens, np.int32),)
    whole = jq.compile(jq.Model(without_cache, model.params, inputs), pipeline="int8-dynamic")
    assert len(set(tokens)) > 10
    np.testing.assert_array_equal(whole(*inputs), np.stack(logits))


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
    _, new, scales = XlaExecutable(program)(x, np.int32(2), codes, scale)
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
