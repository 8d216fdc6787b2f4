"""Masks in front of softmax on devices without floats: a choice of two numbers has no range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from tests.support.programs import evaluated

pytestmark = pytest.mark.usefixtures("quick_xla")

RNG = np.random.default_rng(0)
LOW, N = float(np.finfo(np.float32).min), 4
WEIGHTS = {n: (RNG.standard_normal((16, 16)) / 4).astype(np.float32) for n in "qkv"}
X = RNG.standard_normal((2, N, 16)).astype(np.float32)
CAUSAL = np.tri(N, dtype=bool)
KEEP = np.stack([CAUSAL, CAUSAL & (np.arange(N) >= 2)])  # the second is padded on the left
HIDDEN = np.where(CAUSAL, 0, -np.inf).astype(np.float32)

MASKS: dict[str, Callable[[Any, Any], Any]] = {
    "-1e9": lambda s, k: s + jnp.where(k, 0.0, -1e9),
    "lowest": lambda s, k: s + jnp.where(k, 0.0, LOW),
    "-inf": lambda s, k: s + jnp.where(k, 0.0, -jnp.inf),
    "bfloat16": lambda s, k: s + jnp.where(k, 0.0, -jnp.inf).astype(jnp.bfloat16).astype(s.dtype),
    "row, lowest": lambda s, k: s + jnp.where(k[:, -1:], 0.0, LOW),
    "row, -inf": lambda s, k: s + jnp.where(k[:, -1:], 0.0, -jnp.inf),
    "transposed": lambda s, k: s + jnp.where(k.swapaxes(1, 2), 0.0, -jnp.inf).swapaxes(1, 2),
    "chosen": lambda s, k: jnp.where(k, s, -jnp.inf),
    "product": lambda s, k: s + (1.0 - k.astype(jnp.float32)[:, -1:]) * LOW,
    "small product": lambda s, k: s + (1.0 - k.astype(jnp.float32)[:, -1:]) * -1e4,
    "constant": lambda s, _: s + HIDDEN,
    "after another": lambda s, k: s + HIDDEN + jnp.where(k[:, -1:, :1], 0.0, -1e4),
    "scaled after": lambda s, k: (s * 2 + jnp.where(k, 0.0, LOW)) * 0.5,
    "divided after": lambda s, k: (s * 2 + jnp.where(k, 0.0, -1e9)) / 2.0,
    "larger after": lambda s, k: (s / 3 + jnp.where(k, 0.0, LOW)) * 3.0,
    "chosen, then scaled": lambda s, k: 0.5 * jnp.where(k, s * 2, LOW),
    "hidden, not kept": lambda s, k: (jnp.where(~k, LOW, 0.5) + s) * 1.0001,
    "two, scaled after": lambda s, k: (s * 2 + HIDDEN + jnp.where(k[:, -1:, :1], 0.0, -1e4)) * 0.5,
    "integers": lambda s, k: s + (jnp.where(k, 0, -(10**9)) * 2).astype(jnp.float32),
    "small, scaled after": lambda s, k: (s * 2 + jnp.where(k, 0.0, -1e4)) * 0.5,
    "added first, scaled after": lambda s, k: (
        (s * 2 + (HIDDEN + jnp.where(k[:, -1:, :1], 0.0, -1e4))) * 0.5
    ),
    "added first": lambda s, k: s + (HIDDEN + jnp.where(k[:, -1:, :1], 0.0, -1e4)),
}


def attention(mask: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def model(p: Any, x: Any, keep: Any) -> Any:
        q, k, v = (x @ p[n] for n in "qkv")
        scores = jnp.einsum("bqd,bkd->bqk", q, k) / 4
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(mask(scores, keep)), v)

    return model


@pytest.mark.parametrize("spelling", MASKS)
def test_every_spelling_keeps_the_steps_of_the_scores(spelling: str) -> None:
    fn, seen = attention(MASKS[spelling]), KEEP | np.eye(N, dtype=bool)
    model = jq.Model(fn, WEIGHTS, (X, KEEP), calibration=[(X, seen)])
    levels = jq.rewrite(model, pipeline="int8-static-integer-only", settings={"recovery": False})
    want = np.asarray(fn(WEIGHTS, X, KEEP))
    finite = np.isfinite(want)
    for level in ("qdq", "integer"):
        (found,) = evaluated(levels[level], X, KEEP)
        noise = np.square((found - want)[finite]).sum()
        assert noise < 1e-3 * np.square(want[finite]).sum(), level  # 8 bits: about 1e-4


def test_a_choice_that_something_else_reads_has_a_range() -> None:
    def fn(p: Any, x: Any, keep: Any) -> Any:
        chosen = jnp.where(keep, 0.5, -2.0)
        return (x @ x.swapaxes(1, 2) + chosen) @ (x @ p["q"])

    model = jq.Model(fn, WEIGHTS, (X, KEEP), calibration=[(X, KEEP)])
    levels = jq.rewrite(model, pipeline="int8-static-integer-only", settings={"recovery": False})
    want = np.asarray(fn(WEIGHTS, X, KEEP))
    (found,) = evaluated(levels["integer"], X, KEEP)
    assert np.square(found - want).sum() < 1e-3 * np.square(want).sum()


def test_a_mask_that_is_added_and_chosen_by() -> None:
    """One kernel reads it twice, and IREE's compiler failed on its bits, moved in between."""

    def fn(p: Any, x: Any, keep: Any) -> Any:
        q, k, v = ((x @ p[n]).reshape(2, N, 2, 8) for n in "qkv")
        bias = jnp.where(keep[:, None], 0.0, -3.0)
        return jax.nn.dot_product_attention(q, k, v, bias=bias, mask=keep[:, None])

    seen = KEEP | np.eye(N, dtype=bool)
    model = jq.Model(fn, WEIGHTS, (X, seen), calibration=[(X, seen)])
    settings = {"recovery": False}
    found = jq.compile(model, pipeline="int8-static-integer-only", settings=settings)(X, seen)
    want = np.asarray(fn(WEIGHTS, X, seen))
    assert np.square(found - want).sum() < 1e-3 * np.square(want).sum()
