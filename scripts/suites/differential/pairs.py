"""Pairs of drawn networks that are one function: quantized, they must still agree.

- rewritten before quantizing: products of transposes, or of each half of the weight's columns;
- the batch split: each sample for itself, with the ranges of all;
- hidden channels in another order.

The interpreter runs both at the integer level. What is stated of them is in `EXACT`: equal bits, or
else `suites.differential.networks.near`, as sums of floats come in another order, and a range that
was seen by XLA may have another last place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import jq
from jq.base.errors import UserError
from jq.ir.oracle.interpreter import interpret
from suites.differential.architectures import HIDDEN, Network, network
from suites.differential.evaluate import same, told
from suites.differential.networks import SETTINGS, near, reference
from suites.outcome import FAILED, REFUSED, RIGHT, WRONG, Outcome

Pair = Callable[[Network], tuple[np.ndarray, np.ndarray]]


def quantized(drawn: Network, model: Any = None, ranges: Any = None) -> Any:
    """The integer level."""
    given = {"ranges": ranges} if ranges is not None else {}
    model = model or drawn.model()
    return jq.rewrite(model, pipeline=drawn.pipeline, settings=SETTINGS, **given)["integer"]


def transposed(drawn: Network) -> tuple[np.ndarray, np.ndarray]:
    return _rewritten(drawn, lambda x, w: jnp.swapaxes(w.T @ jnp.swapaxes(x, -1, -2), -1, -2))


def halves(drawn: Network) -> tuple[np.ndarray, np.ndarray]:
    def linear(x: Any, w: Any) -> Any:
        cut = w.shape[-1] // 2
        return jnp.concatenate([x @ w[:, :cut], x @ w[:, cut:]], -1)

    return _rewritten(drawn, linear)


def _rewritten(drawn: Network, linear: Any) -> tuple[np.ndarray, np.ndarray]:
    x, other = drawn.samples[0], drawn.model(lambda p, x: drawn(p, x, linear))
    return interpret(quantized(drawn), x)[0], interpret(quantized(drawn, other), x)[0]


def split(drawn: Network) -> tuple[np.ndarray, np.ndarray]:
    x, ranges = drawn.samples[0], None
    if "static" in drawn.pipeline:
        ranges = jq.calibrate(drawn.model(), pipeline=drawn.pipeline, settings=SETTINGS)
        ranges = replace(ranges, model="")  # that of one sample is another one
    whole = interpret(quantized(drawn, ranges=ranges), x)[0]
    one = quantized(drawn, drawn.model(rows=1), ranges)
    return whole, np.concatenate([interpret(one, x[i : i + 1])[0] for i in range(len(x))])


def permuted(drawn: Network) -> tuple[np.ndarray, np.ndarray]:
    params, rng = dict(drawn.params), np.random.default_rng(0)
    for i, block in enumerate(drawn.blocks):
        for first, second, group in HIDDEN.get(block.func.__name__, ()):  # type: ignore[attr-defined,arg-type]
            a, b = params[f"b{i}/{first}"], params[f"b{i}/{second}"]
            width = a.shape[-1] // group
            order = np.concatenate([k * width + rng.permutation(width) for k in range(group)])
            params[f"b{i}/{first}"] = a[..., order]
            params[f"b{i}/{second}"] = _second(block.func.__name__, b, order)  # type: ignore[attr-defined,arg-type]
    x, other = drawn.samples[0], drawn.model(params=params)
    return interpret(quantized(drawn), x)[0], interpret(quantized(drawn, other), x)[0]


def _second(block: str, b: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The reader of the channels: rows of a product, or the other side of the scores."""
    if block == "attention":
        return b[..., order]
    if block == "convolution":  # a channel of each column of the image
        return b.reshape(-1, len(order), b.shape[-1])[:, order].reshape(b.shape)
    return b[..., order, :]


PAIRS: dict[str, Pair] = {f.__name__: f for f in (transposed, halves, split, permuted)}
EXACT = {"halves", "split"}  # in every pipeline


@dataclass(frozen=True)
class Case:
    name: str
    seed: int


def identify(case: Case) -> tuple[str, str]:
    return f"{case.name}, {network(case.seed)}", f"{case.name} {case.seed}"


def judge(cases: Sequence[Case]) -> list[Outcome | None]:
    """The outcome of one case."""
    logging.disable(logging.WARNING)
    (case,) = cases
    try:
        found = differs(case)
        return [Outcome(*identify(case), WRONG if found else RIGHT, found)]
    except Exception as error:
        verdict = REFUSED if isinstance(error, UserError) else FAILED
        return [Outcome(*identify(case), verdict, str(error).partition("\n")[0][:300])]


def differs(case: Case) -> str:
    drawn = network(case.seed)
    right, found = PAIRS[case.name](drawn)
    if case.name in EXACT:
        return "" if same(found, right) else told(found, right)
    return near(found, right, reference(drawn))
