"""The cases: built-in models, a decode step, and products by themselves."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.model import Batch, Model
from jq.trace.source import load_model
from peers.case import DYNAMIC, STATIC, WEIGHTS4, WEIGHTS8, Case

INT8 = frozenset({DYNAMIC, STATIC})
ALL = INT8 | {WEIGHTS8, WEIGHTS4}


def _built_in(module: str, **sizes: int) -> Callable[[], Model]:
    return lambda: importlib.import_module(f"jq.models.{module}").build(**sizes)


def models() -> dict[str, Case]:
    encoder = ("float", "int8-dynamic", "int8-static")
    images = ("float", "int8-static")
    decoder = ("float", "int8-weight-only", "int8-dynamic", "int4-weight-only")
    found = [
        Case("minilm-1x128", _built_in("minilm"), encoder, "transformer", INT8),
        Case("minilm-8x128", _built_in("minilm", batch=8), encoder, "transformer", INT8),
        Case("resnet-224", _built_in("resnet"), images, "convolution", frozenset({STATIC})),
        Case("mobilenet-224", _built_in("mobilenet"), images, "convolution", frozenset({STATIC})),
        Case("digits_cnn", _built_in("digits_cnn"), images, "convolution", frozenset({STATIC})),
        Case("gpt-decode", decode_step, decoder, "decode", ALL),
    ]
    return {case.name: case for case in found}


def find(name: str) -> Case:
    """A built-in case, or any model as the commands take it: all peers then."""
    known = models()
    if name in known:
        return known[name]
    pipelines = ("float", "int8-dynamic", "int8-static")

    def build() -> Model:
        model = load_model(name)
        assert isinstance(model, Model), "a file has no JAX function to export"
        return model

    return Case(name.replace("/", "_").replace(":", "."), build, pipelines, "model", INT8)


# A decode step with more weights than the caches hold. Its layers are written one after the other,
# for other exporters have no loop that their quantizers look into.


def decode_step(
    layers: int = 4,
    hidden: int = 1536,
    heads: int = 12,
    vocabulary: int = 8192,
    context: int = 128,
    seed: int = 0,
) -> Model:
    """One token of the built-in decoder: 163 million parameters; caches are [context, head, d]."""
    gpt = importlib.import_module("jq.models.gpt")
    params = gpt.parameters(layers, hidden, vocabulary, context, seed)
    stacked = params.pop("layers")
    params["layers"] = {
        f"layer{i}": jax.tree.map(lambda x, i=i: np.ascontiguousarray(x[i]), stacked)
        for i in range(layers)
    }

    def step(params: Any, token: jax.Array, position: jax.Array, *caches: jax.Array) -> Any:
        tables = params["embed"]
        x = tables["tokens"]["embedding"][token] * math.sqrt(hidden)
        x = x + jax.lax.dynamic_slice_in_dim(tables["positions"]["embedding"], position, 1)
        seen = (jnp.arange(context) <= position)[None, :]
        new = []
        for i in range(layers):
            p = params["layers"][f"layer{i}"]
            with jax.named_scope(f"layer{i}"):
                k, v = caches[2 * i : 2 * i + 2]
                y, k, v = gpt.attention(p["attention"], x, position, seen, k, v)
                x = x + y + gpt.mlp(p["mlp"], x + y)
            new += [k, v]
        x = gpt.rms_norm(params["norm"], x)
        return x @ tables["tokens"]["embedding"].T, *new

    def steps(count: int, seed: int) -> Iterator[Batch]:
        """Sequences of 16 tokens each, through the float model."""
        rng = np.random.default_rng(seed)
        chance = 1 / np.arange(1, vocabulary + 1)
        function = jax.jit(step)
        held = jax.device_put(params)
        for _ in range(count // 16):
            shape = (context, heads, hidden // heads)
            caches = [np.zeros(shape, np.float32) for _ in range(2 * layers)]
            for position in range(16):
                token = rng.choice(vocabulary, 1, p=chance / chance.sum()).astype(np.int32)
                batch = (token, np.asarray(position, np.int32), *caches)
                yield batch
                caches = [np.asarray(c) for c in function(held, *batch)[1:]]

    cache = jax.ShapeDtypeStruct((context, heads, hidden // heads), np.float32)
    scalars = (jax.ShapeDtypeStruct((1,), np.int32), jax.ShapeDtypeStruct((), np.int32))
    return Model(
        fn=step,
        params=params,
        example_inputs=(*scalars, *[cache] * (2 * layers)),
        calibration=lambda: list(steps(16, seed + 1)),
        evaluation=lambda: list(steps(32, seed + 2)),
        name="gpt-decode",
    )


# Products by themselves.

ROWS = (1, 4, 16, 64, 128, 512)
SIDES = (256, 1024, 4096)
WORK = 3.2e8  # operations of a call, at least: enough to be timed
ROOM = 48e6  # bytes of int8 weights where rows are few: more than the caches hold


def products(rows: tuple[int, ...] = ROWS, sides: tuple[int, ...] = SIDES) -> list[Case]:
    """f32[M, K] x f32[K, N], several of different data in one program."""
    pipelines = ("int8-dynamic", "int8-static")
    cases = []
    for m in rows:
        for k in sides:
            for n in sides:
                copies = _copies(m, k, n)
                build = partial(product, m, k, n, copies)
                name = f"gemm-{m}x{k}x{n}"
                cases.append(Case(name, build, pipelines, "product", INT8, copies))
    return cases


def _copies(m: int, k: int, n: int) -> int:
    wanted = max(WORK / (2 * m * k * n), ROOM / (k * n) if m <= 16 else 1)
    return int(min(16, max(1, math.ceil(wanted))))


def product(m: int, k: int, n: int, copies: int) -> Model:
    rng = np.random.default_rng((m, k, n))
    scale = np.float32(1 / math.sqrt(k))
    weights = {
        f"product{i}": {"kernel": scale * rng.standard_normal((k, n), np.float32)}
        for i in range(copies)
    }

    def apply(params: Any, *inputs: jax.Array) -> Any:
        return tuple(x @ w["kernel"] for x, w in zip(inputs, params.values(), strict=True))

    def draw(seed: int) -> Batch:
        rng = np.random.default_rng(seed)
        return tuple(rng.standard_normal((m, k), np.float32) for _ in range(copies))

    return Model(
        fn=apply,
        params=weights,
        example_inputs=draw(0),
        calibration=[draw(i) for i in (1, 2)],
        evaluation=[draw(i) for i in (3, 4)],
        name="product",
    )
