"""Mistakes in a model, told by their place in the user's code and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError

W, X = np.ones((16, 16), np.float32), np.ones((4, 16), np.float32)


def of_scale(p: Any, x: Any, *, scale: float) -> Any:
    return x @ p * scale


def of_x(x: Any) -> Any:
    return x


def of_mode(p: Any, x: Any, train: bool) -> Any:
    return x @ p if train else x


def of_count(p: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        x = x @ p
    return x


def deep(p: Any, x: Any) -> Any:
    return jnp.tanh(wrong(x))


def wrong(x: Any) -> Any:
    raise TypeError("my own")


def line_of(function: Callable[..., Any], more: int = 0) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + more}"


@pytest.mark.parametrize(
    ("fn", "inputs", "where", "hint"),
    [
        (of_scale, (X,), line_of(of_scale), "it is called as fn(params, input 0); fix other"),
        (of_x, (X,), line_of(of_x), "it is called as fn(params, input 0)"),
        (jax.jit(of_x), (X,), line_of(of_x), "it is called as fn(params, input 0)"),
        (of_mode, (X, True), line_of(of_mode, 1), "arg1: a Python number there is traced as an"),
        (of_count, (X, 2), line_of(of_count, 1), "arg1: a Python number there is traced as an"),
        (deep, (X,), line_of(wrong, 1), None),
        (of_mode, (X, np.True_), line_of(of_mode, 1), "not with if"),
    ],
)
def test_where_and_what_to_do(
    fn: Callable[..., Any], inputs: tuple[Any, ...], where: str, hint: str | None
) -> None:
    with pytest.raises(UserError, match="cannot be traced") as told:
        jq.trace(jq.Model(fn, W, inputs))
    assert told.value.location == where
    assert (hint in (told.value.hint or "")) if hint else told.value.hint is None


def test_settings_and_shapes_are_no_parameters() -> None:
    with pytest.raises(UserError, match=r"str is not an array \[act\]; .*functools.partial"):
        jq.trace(jq.Model(lambda p, x: x @ p["w"], {"w": W, "act": "relu"}, (X,)))
    shape = jax.ShapeDtypeStruct(W.shape, W.dtype)
    with pytest.raises(UserError, match=r"weight is a shape .*without values \[w\]"):
        jq.trace(jq.Model(lambda p, x: x @ p["w"], {"w": shape}, (X,)))


def kept_aside(p: Any, x: Any) -> Any:
    kept: list[Any] = []
    jax.jit(kept.append)(x)
    return kept[0] @ p


def widened(p: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, _: ((h @ p).astype(jnp.bfloat16), None), x, length=2)[0]


@pytest.mark.parametrize(
    ("fn", "params", "what"),
    [
        (kept_aside, W, "UnexpectedTracerError: it reads a value of another trace"),
        (widened, W, "they differ: The input carry h has type float32"),
        (lambda p, x: (x @ p, "text"), W, "TypeError: returned a value of type <class 'str'>"),
        (lambda p, x: x + p, 2**40, "too large to convert to int32 [params0]; give a smaller"),
    ],
)
def test_what_is_said(fn: Callable[..., Any], params: Any, what: str) -> None:
    with pytest.raises(UserError) as told:
        jq.trace(jq.Model(fn, params, (X,)))
    assert what in str(told.value)
