"""Greedy decoding with an int8 KV cache against the whole sequence at once, without a cache.

    scripts/check.py cache
    scripts/check.py cache --prompt 5,9,33 --set attention_precision=float32
    scripts/check.py cache --layers 2 --hidden 64 --pipeline int4-dynamic

Decodes `gpt` one token at a time, its K and V kept as int8 codes per token and head. Then another
program takes the whole sequence at once, its K and V through the same quantization: its logits
choose the same tokens, and have the same bits. Ends with 1 where tokens differ.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

import jq

gpt = importlib.import_module("jq.models.zoo.gpt")
PROMPTS = ["5,9,33", "1,2,3", "0", "100,2000,8000,17"]


def whole(heads: int, params: Any, tokens: jax.Array) -> jax.Array:
    """Logits f32[s, vocabulary] of i32[s]; K and V pass through the int8 of a token and head."""
    tables, length = params["embed"], len(tokens)
    x = tables["tokens"]["embedding"][tokens]
    x = x * math.sqrt(x.shape[1]) + tables["positions"]["embedding"][:length]
    seen = jnp.tril(jnp.ones((length, length), bool))
    layers = len(params["layers"]["mlp"]["norm"]["scale"])
    for i in range(layers):
        layer = jax.tree.map(lambda a, i=i: a[i], params["layers"])
        p = layer["attention"]
        y = gpt.rms_norm(p["norm"], x)
        q, k, v = (
            (y @ p[name]["kernel"]).reshape(length, heads, -1) for name in ("query", "key", "value")
        )
        k, v = (jq.fake_quant(t, granularity="per-token") for t in (k, v))
        scores = jnp.einsum("shd,thd->hst", q, k) / math.sqrt(q.shape[-1])
        weights = jax.nn.softmax(jnp.where(seen, scores, gpt.MASKED), axis=-1)
        context = jnp.einsum("hst,thd->shd", weights, v).reshape(x.shape)
        x = x + context @ p["output"]["kernel"]
        x = x + gpt.mlp(layer["mlp"], x)
    return gpt.rms_norm(params["norm"], x) @ tables["tokens"]["embedding"].T


def empty(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """A cache f32[layer, context, head, width], as it is stored."""
    return {"codes": np.zeros(shape, np.int8), "scale": np.ones((*shape[:-1], 1), np.float32)}


def decode(
    step: Callable[..., Any], shape: tuple[int, ...], prompt: list[int], count: int
) -> tuple[list[int], np.ndarray]:
    """The tokens that went in, the most likely one after the other, and the logits of each."""
    caches, tokens, logits = [empty(shape), empty(shape)], list(prompt), []
    for position in range(len(prompt) + count - 1):
        token = np.array(tokens[position : position + 1], np.int32)
        row, *caches = step(token, np.int32(position), *caches)
        logits.append(np.array(row[-1]))
        if position + 1 == len(tokens):
            tokens.append(int(logits[-1].argmax()))
    return tokens[:-1], np.stack(logits)


def main(
    prompt: Annotated[list[str], typer.Option(help="Token ids; may be repeated.")] = PROMPTS,
    tokens: Annotated[int, typer.Option(help="To decode.")] = 64,
    pipeline: Annotated[str, typer.Option()] = "int8-dynamic",
    assignments: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE")] = [],  # noqa: B006
    layers: Annotated[int, typer.Option()] = 6,
    hidden: Annotated[int, typer.Option()] = 512,
    context: Annotated[int, typer.Option()] = 256,
) -> None:
    model = gpt.build(layers=layers, hidden=hidden, context=context)
    cached = [*assignments, "kv_cache.format=int8"]
    step = jq.compile(model, pipeline=pipeline, settings=cached)
    shape, differing = (layers, context, gpt.HEADS, hidden // gpt.HEADS), 0
    for text in prompt:
        ids = [int(i) for i in text.split(",")]
        given, rows = decode(step, shape, ids, tokens)
        inputs = (np.array(given, np.int32),)
        once = jq.Model(partial(whole, gpt.HEADS), model.params, inputs)
        expected = np.asarray(jq.compile(once, pipeline=pipeline, settings=assignments)(*inputs))
        same = (rows.argmax(1) == expected.argmax(1))[len(ids) - 1 :]
        bits = (rows == expected).all(1)
        print(
            f"{text}: {same.sum()} of {len(same)} tokens are the same,"
            f" {bits.sum()} of {len(bits)} rows of logits bit for bit"
        )
        differing += int((~same).sum())
    raise typer.Exit(int(differing > 0))
