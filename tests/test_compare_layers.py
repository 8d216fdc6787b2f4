"""The error of every contraction, against NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.formats import NUMPY, Encoding, get_format
from jq.layers import compare_layers


def mlp(params: Any, x: Any) -> Any:
    return jnp.maximum(x @ params["first"], 0) @ params["second"]


def through_int8(weight: np.ndarray) -> np.ndarray:
    encoding = Encoding("int8", weight.shape, (0, 1))
    fmt = get_format("int8")
    return np.asarray(fmt.decode(NUMPY, fmt.encode(weight, encoding), encoding))


def sqnr(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    reference, quantized = (
        np.concatenate(side).astype(np.float64) for side in zip(*pairs, strict=True)
    )
    return float(10 * np.log10((reference**2).sum() / ((reference - quantized) ** 2).sum()))


def test_layers_against_numpy() -> None:
    rng = np.random.default_rng(0)
    params = {
        "first": rng.standard_normal((64, 96), np.float32),
        "second": rng.standard_normal((96, 16), np.float32),
    }
    batches = [(rng.standard_normal((8, 64), np.float32),) for _ in range(3)]
    levels = jq.rewrite(jq.Model(mlp, params, batches[0]), pipeline="int8-weight-only")
    found = compare_layers(levels["float"], levels["qdq"], batches)
    stored = {name: through_int8(w) for name, w in params.items()}
    first, second = [], []
    for (x,) in batches:
        first.append((x @ params["first"], x @ stored["first"]))
        second.append(
            tuple(
                np.maximum(hidden, 0) @ weight["second"]
                for hidden, weight in zip(first[-1], (params, stored), strict=True)
            )
        )
    assert [(layer.name, layer.op) for layer in found] == [
        ("first", "dot_general"),
        ("second", "dot_general"),
    ]
    # Sums in another order: 96 terms of float32 against noise of 8 bits.
    assert found[0].sqnr_db == pytest.approx(sqnr(first), abs=0.01)
    assert found[1].sqnr_db == pytest.approx(sqnr(second), abs=0.01)


def test_ops_in_loops_have_no_row() -> None:
    def stack(params: Any, x: Any) -> Any:
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["w"])[0] @ params["v"]

    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((3, 8, 8), np.float32), "v": np.eye(8, dtype=np.float32)}
    x = (rng.standard_normal((2, 8), np.float32),)
    levels = jq.rewrite(jq.Model(stack, params, x), pipeline="int8-dynamic")
    assert [e.name for e in compare_layers(levels["float"], levels["qdq"], [x])] == ["v"]
