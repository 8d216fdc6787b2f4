"""Attention under masks: the cases of `scripts/suite.py masks`.

One program has every shape in every spelling; each of its four samples is padded or packed in
another way. Right is what is finite where JAX is, and within a share of the error of the row.

Where activations have 4 bits too, noise may be as large as the outputs: a row that attends to one
or two keys averages nothing. So `mxfp4` is held to what its format says instead: to JAX's network
whose inputs and weights were rounded by `mxfp4_by_hand`, within what attention in bfloat16 adds
(`attention_precision`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

import jq
from jq.base.errors import UserError

FLOOR = 10.0  # dB, of a sample: int4 weights have 17
# Scores reach 8 here, and may be off by 8 * eps of bfloat16: so is the share of a key.
FLOOR_BY_HAND = -20 * np.log10(8 * float(jnp.finfo(jnp.bfloat16).eps))  # 24 dB
LENGTH, SAMPLES = 32, ("left-padded", "right-padded", "packed", "fully masked")
# Heads, heads of k and v, queries (the last ones), keys, columns of a head.
SHAPES = ((4, 4, 16, 16, 8), (4, 2, 21, 21, 8), (2, 1, 32, 32, 16), (3, 3, 1, 32, 8))
WIDTH = 32


def _added(number: Callable[[Any], float]) -> Callable[..., Any]:
    def scores(s: Any, keep: Any) -> Any:
        return s + jnp.where(keep, jnp.zeros((), s.dtype), jnp.asarray(number(s.dtype), s.dtype))

    return scores


def lowest(dtype: Any) -> float:
    return float(jnp.finfo(dtype).min)


SPELLINGS: dict[str, Callable[..., Any] | None] = {
    "finfo.min": _added(lowest),
    "-1e9": _added(lambda _: -1e9),
    "-inf": _added(lambda _: -np.inf),
    "where": lambda s, keep: jnp.where(keep, s, jnp.asarray(lowest(s.dtype), s.dtype)),
    "finfo.min, then scaled": lambda s, keep: (
        _added(lowest)(s * 2, keep) * jnp.asarray(0.5, s.dtype)
    ),
    "boolean": None,  # jax.nn.dot_product_attention
}


def cases(spellings: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, shape and spelling."""
    for shape in SHAPES:
        for spelling in spellings:
            yield f"{'x'.join(map(str, shape))} {spelling}", shape, spelling


def network(
    p: dict[str, Any], x: Any, keep: Any, spellings: Sequence[str] = tuple(SPELLINGS)
) -> dict[str, Any]:
    """x [4, 32, WIDTH], keep bool [4, 32, 32] -> each case's [4, queries, WIDTH']."""
    return {
        name: _attention([p[f"{name} {n}"] for n in "qkv"], x, keep, shape, SPELLINGS[spelling])
        for name, shape, spelling in cases(spellings)
    }


def _attention(p: Any, x: Any, keep: Any, shape: tuple[int, ...], mask: Any) -> Any:
    heads, shared, queries, keys, dim = shape
    x, keep = x[:, -keys:], keep[:, None, -queries:, -keys:]
    q = (x[:, -queries:] @ p[0]).reshape(len(x), queries, heads, dim)
    k, v = ((x @ w).reshape(len(x), keys, shared, dim) for w in p[1:])
    if mask is None:
        y = jax.nn.dot_product_attention(q, k, v, mask=keep)
    else:
        k, v = (jnp.repeat(t, heads // shared, axis=2) for t in (k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.asarray(np.sqrt(dim), q.dtype)
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(mask(scores, keep)), v)
    return y.reshape(len(x), queries, heads * dim)


def keeps() -> np.ndarray:
    """Keys that a query sees, of each of `SAMPLES`; all are causal."""
    there, causal = np.arange(LENGTH), np.tri(LENGTH, dtype=bool)
    parts = there // 12
    return np.stack(
        [
            causal & (there >= 21),
            causal & (there < 24),
            causal & (parts[:, None] == parts),
            np.zeros_like(causal),
        ]
    )


def mxfp4_by_hand(x: Any, axis: int) -> Any:
    """x rounded to MXFP4, one block along an axis of 32, by ml_dtypes and the specification alone:
    the scale is 2^(floor(log2(largest)) - 2); what is beyond 6 steps is 6."""
    wide = np.asarray(x, np.float64)
    largest = np.abs(wide).max(axis, keepdims=True)
    scale = np.exp2(np.floor(np.log2(largest)) - 2)
    steps = (wide / scale).astype(ml_dtypes.float4_e2m1fn).astype(np.float64)
    return jnp.asarray(steps * scale, x.dtype)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a pipeline: samples of cases compared, the least dB, what is wrong."""

    compared: int
    least: float
    wrong: tuple[str, ...]
    refused: str = ""


def run(
    pipeline: str,
    dtype: Any,
    seed: int = 0,
    spellings: Sequence[str] = tuple(SPELLINGS),
    **settings: Any,
) -> Outcome:
    """All cases of some spellings in one pipeline."""
    rng = np.random.default_rng(seed)
    weights = {
        f"{name} {n}": rng.standard_normal((WIDTH, (heads if n == "q" else shared) * dim)) / 6
        for name, (heads, shared, _, _, dim), _ in cases(spellings)
        for n in "qkv"
    }
    params = {name: jnp.asarray(w, dtype) for name, w in weights.items()}
    x = jnp.asarray(rng.standard_normal((len(SAMPLES), LENGTH, WIDTH)), dtype)
    seen = keeps() | np.eye(LENGTH, dtype=bool)  # a hidden row has no range
    written = partial(network, spellings=spellings)
    model = jq.Model(written, params, (x, keeps()), calibration=[(x, seen)])
    try:
        found = jq.compile(model, pipeline=pipeline, settings={"recovery": False} | settings)(
            x, keeps()
        )
    except UserError as error:
        return Outcome(0, np.inf, (), str(error))
    floor = FLOOR
    if pipeline == "mxfp4":
        params, x = {n: mxfp4_by_hand(w, 0) for n, w in params.items()}, mxfp4_by_hand(x, -1)
        floor = FLOOR_BY_HAND
    expected = jax.jit(written)(params, x, keeps())
    wrong, least = [], np.inf
    for name, *_ in cases(spellings):
        for sample, y, want in zip(SAMPLES, found[name], expected[name], strict=True):
            y, want = np.asarray(y, np.float64), np.asarray(want, np.float64)
            finite = np.isfinite(want)
            noise = np.square(y - want)[finite].sum()
            db = 10 * np.log10(np.square(want)[finite].sum() / noise) if noise > 0 else np.inf
            least = min(least, db)
            if not np.isfinite(y[finite]).all() or not db >= floor:
                wrong.append(f"{name}, {sample}: {db:.1f} dB")
    return Outcome(len(SAMPLES) * len(list(cases(spellings))), least, tuple(wrong))
