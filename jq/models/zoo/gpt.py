"""Small GPT decoder with a KV cache, one step at a time, with random weights.

Layers are stacked, [layer, ...], and run by `lax.scan`. The embedding table is also the output
layer. RMS norms in front of attention and of a SiLU-gated MLP."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.errors import UserError
from jq.frontends.model import Batch, Model
from jq.ir.memory import NO_LIBRARY
from jq.models._tree import nest, spec

EPSILON = 1e-6  # of the norms
MASKED = -1e9  # score of a position that is still to come
HEADS = 8
_TABLES = ("tokens", "positions")

State = tuple[jax.Array, jax.Array, jax.Array]  # logits, cache_k, cache_v


def step(
    params: Any, token: jax.Array, position: jax.Array, cache_k: jax.Array, cache_v: jax.Array
) -> State:
    """Appends `token` i32[s] at `position` i32[]; s is 1 to decode, more to take in a prompt.

    Caches are f32[layer, context, head, width of a head], filled in front of `position`; what lies
    after is not read. Returns logits f32[s, vocabulary] and the caches, now filled up to position +
    s, which must not exceed the context."""
    with jax.named_scope("embed"):
        tables = params["embed"]
        x = tables["tokens"]["embedding"][token] * math.sqrt(tables["tokens"]["embedding"].shape[1])
        x = x + jax.lax.dynamic_slice_in_dim(tables["positions"]["embedding"], position, len(token))
    seen = jnp.arange(cache_k.shape[1]) <= position + jnp.arange(len(token))[:, None]

    def layer(x: jax.Array, inputs: Any) -> tuple[jax.Array, Any]:
        p, k, v = inputs
        with jax.named_scope("attention"):
            y, k, v = attention(p["attention"], x, position, seen, k, v)
        with jax.named_scope("mlp"):
            return x + y + mlp(p["mlp"], x + y), (k, v)

    with jax.named_scope("layers"):
        x, (cache_k, cache_v) = jax.lax.scan(layer, x, (params["layers"], cache_k, cache_v))
    with jax.named_scope("head"):
        logits = rms_norm(params["norm"], x) @ params["embed"]["tokens"]["embedding"].T
    return logits, cache_k, cache_v


def attention(
    p: Any, x: jax.Array, position: jax.Array, seen: jax.Array, k: jax.Array, v: jax.Array
) -> State:
    """Causal attention of x f32[s, d] to caches k, v f32[t, h, d / h], which take in x first."""
    heads = k.shape[1:]
    y = rms_norm(p["norm"], x)
    query, key, value = (
        dense(p[name], y, name).reshape(-1, *heads) for name in ("query", "key", "value")
    )
    k = jax.lax.dynamic_update_slice_in_dim(k, key, position, axis=0)
    v = jax.lax.dynamic_update_slice_in_dim(v, value, position, axis=0)
    with jax.named_scope("scores"):
        scores = jnp.einsum("shd,thd->hst", query, k) / math.sqrt(heads[1])
    weights = jax.nn.softmax(jnp.where(seen, scores, MASKED), axis=-1)
    with jax.named_scope("context"):
        context = jnp.einsum("hst,thd->shd", weights, v).reshape(x.shape)
    return dense(p["output"], context, "output"), k, v


def mlp(p: Any, x: jax.Array) -> jax.Array:
    """down(silu(gate(x)) * up(x)) (Shazeer 2020)."""
    y = rms_norm(p["norm"], x)
    inner = jax.nn.silu(dense(p["gate"], y, "gate")) * dense(p["up"], y, "up")
    return dense(p["down"], inner, "down")


def dense(p: Any, x: jax.Array, name: str) -> jax.Array:
    with jax.named_scope(name):
        y: jax.Array = x @ p["kernel"]
    return y


def rms_norm(p: Any, x: jax.Array) -> jax.Array:
    with jax.named_scope("norm"):
        mean = jnp.square(x).mean(axis=-1, keepdims=True)
        y: jax.Array = x * jax.lax.rsqrt(mean + EPSILON) * p["scale"]
    return y


def empty_cache(params: Any, heads: int = HEADS) -> tuple[np.ndarray, np.ndarray]:
    """Zero caches for all positions that `params` has embeddings for."""
    context, hidden = params["embed"]["positions"]["embedding"].shape
    layers = len(params["layers"]["attention"]["query"]["kernel"])
    shape = (layers, context, heads, hidden // heads)
    return np.zeros(shape, np.float32), np.zeros(shape, np.float32)


def forward(params: Any, tokens: jax.Array, heads: int = HEADS) -> jax.Array:
    """A whole sequence i32[s] at once -> logits f32[s, vocabulary]."""
    return step(params, tokens, jnp.int32(0), *map(jnp.asarray, empty_cache(params, heads)))[0]


def greedy(
    step_fn: Callable[..., Any], params: Any, prompt: Sequence[int], n: int, heads: int = HEADS
) -> list[int]:
    """The `n` tokens after `prompt`, each the most likely one.

    `step_fn` is `step`, or anything that is called and answers like it, such as `lambda params,
    *inputs: compiled(*inputs)`."""
    context = len(params["embed"]["positions"]["embedding"])
    if not prompt or n < 1 or len(prompt) + n - 1 > context:
        raise UserError(f"a prompt and {n} new tokens do not fit in 1 to {context} positions")
    caches: tuple[Any, ...] = empty_cache(params, heads)
    pending, chosen = list(prompt), []
    for position in range(len(prompt) + n - 1):
        token = np.array([pending.pop(0)], np.int32)
        logits, *caches = step_fn(params, token, np.int32(position), *caches)
        if not pending:
            chosen.append(int(np.argmax(np.asarray(logits)[-1])))
            pending.append(chosen[-1])
    return chosen


def parameters(
    layers: int, hidden: int, vocabulary: int, context: int, seed: int
) -> dict[str, Any]:
    """Normal weights scaled by 1 / sqrt(inputs), so that every product keeps its scale."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, inputs: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(inputs))

    inner = 4 * hidden
    scale = 1 + normal(layers, 2, hidden, inputs=100)
    # Signs differ in the last norm: with a tied table of equal ones a token would predict itself.
    sign = rng.choice(np.array([-1, 1], np.float32), hidden)
    flat = {
        "embed/tokens/embedding": normal(vocabulary, hidden, inputs=hidden),
        "embed/positions/embedding": normal(context, hidden, inputs=4),
        "layers/attention/norm/scale": scale[:, 0].copy(),
        "layers/mlp/norm/scale": scale[:, 1].copy(),
        "norm/scale": sign * (1 + normal(hidden, inputs=100)),
    }
    for name in ("query", "key", "value", "output"):
        flat[f"layers/attention/{name}/kernel"] = normal(layers, hidden, hidden, inputs=hidden)
    for name in ("gate", "up"):
        flat[f"layers/mlp/{name}/kernel"] = normal(layers, hidden, inner, inputs=hidden)
    flat["layers/mlp/down/kernel"] = normal(layers, inner, hidden, inputs=inner)
    return nest(flat)


def build(
    layers: int = 6,
    hidden: int = 512,
    heads: int = HEADS,
    vocabulary: int = 8192,
    context: int = 256,
    seed: int = 0,
) -> Model:
    """One decode step of batch 1. Its sets are single steps at 16 and 32 random positions.

    The cache of a step holds what the float model computed for the tokens before it; tokens are
    Zipf-distributed, as words are."""
    if hidden % heads or min(layers, heads, vocabulary - 1, context - 1) < 1:
        raise UserError(f"gpt needs positive sizes and hidden {hidden} a multiple of {heads} heads")
    params = parameters(layers, hidden, vocabulary, context, seed)
    cache = spec((layers, context, heads, hidden // heads), np.float32)
    return Model(
        fn=step,
        params=params,
        example_inputs=(spec((1,), np.int32), spec((), np.int32), cache, cache),
        calibration=partial(_steps, params, heads, 16, seed + 1),
        evaluation=partial(_steps, params, heads, 32, seed + 2),
        name="gpt",
        input_names=("token", "position", "cache_k", "cache_v"),
    )


def _steps(params: Any, heads: int, count: int, seed: int) -> list[Batch]:
    """Steps at random positions, eight in each of `count // 8` sequences."""
    rng = np.random.default_rng(seed)
    vocabulary, context = (len(params["embed"][name]["embedding"]) for name in _TABLES)
    chance = 1 / np.arange(1, vocabulary + 1)
    fill = jax.jit(step, compiler_options=NO_LIBRARY)
    batches: list[Batch] = []
    for _ in range(count // 8):
        tokens = rng.choice(vocabulary, context, p=chance / chance.sum()).astype(np.int32)
        _, *caches = fill(params, tokens, np.int32(0), *empty_cache(params, heads))
        for position in rng.integers(0, context, 8, np.int32):
            past = (np.arange(context) < position).astype(np.float32)[None, :, None, None]
            k, v = (np.asarray(c) * past for c in caches)
            batches.append((tokens[position][None], np.asarray(position), k, v))
    return batches
