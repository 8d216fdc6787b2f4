"""Networks that people hand over, in every form: the bits of the integer program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.passes.prepare.spell_out import exchanges
from tests.support.programs import evaluated

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
pytest.importorskip("onnxruntime")
pytest.importorskip("tosa_reference_model", reason="tosa-tools is not installed")
pytestmark = pytest.mark.usefixtures("quick_xla")
FORMS = {".tosa": "npu-int8", ".tflite": "litert", ".onnx": "onnx-qdq"}


def nearest(p: Any, x: jax.Array) -> Any:
    """Vector quantization: products read the vectors in low bits, lengths and differences do not;
    and a product with the vector that is found."""
    h, e = x[:, 0] @ p["w"], p["e"]
    squares = (h**2).sum(-1, keepdims=True) - 2 * h @ e.T + (e**2).sum(-1)
    differences = ((h[:, None] - e) ** 2).sum(-1)
    return jnp.argmin(squares, -1), e[jnp.argmin(differences, -1)] @ p["w"].T


def averages(p: Any, x: jax.Array) -> Any:
    """Averages of what windows at the edges have of the tensor, as `count_include_pad=False`."""
    window = jax.lax.add, (1, 3, 3), (1, 2, 2), "SAME"
    total, count = (jax.lax.reduce_window(v, 0.0, *window) for v in (x, jnp.ones_like(x)))
    return total / count


def ordered(p: Any, x: jax.Array) -> Any:
    """Numbers in order, the largest, medians, products and sums at a known place."""
    h = x @ p["w"]
    part = h.at[:, 1:3, 0].add(x[:, 1:3, 1]).at[:, -1].add(1.5)
    median = jnp.median(h, -2)
    return jnp.sort(h, 1), jax.lax.top_k(h, 3)[0], median, jnp.prod(jnp.tanh(x), 1), part


@pytest.mark.parametrize("suffix", FORMS)
@pytest.mark.parametrize("apply", [nearest, averages, ordered])
def test_every_output_has_the_same_bits(
    apply: Callable[..., Any], suffix: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    params = {"w": rng.standard_normal((6, 8), np.float32)}
    params["e"] = rng.standard_normal((16, 8), np.float32)
    samples = [(rng.standard_normal((2, 5, 6), np.float32),) for _ in range(3)]
    model = jq.Model(apply, params, samples[0], calibration=samples)
    given: Any = {"target": FORMS[suffix], "settings": {"recovery": False}}
    found = jq.export(model, tmp_path / f"m{suffix}", verify=True, **given)
    assert found["same"] == found["outputs"] > 0


def test_what_is_spelled_out_computes_the_same() -> None:
    rng = np.random.default_rng(6)
    x, params = rng.standard_normal((2, 5, 6), np.float32), {"w": np.eye(6, dtype=np.float32)}
    model = jq.Model(ordered, params, (x,), calibration=[(x,)])
    levels = jq.rewrite(model, pipeline="int8-static-integer-only", target="ethos-u55")
    kinds = {op.operation.name for op in levels["float"].walk()}
    assert not kinds & {"stablehlo.sort", "chlo.top_k", "stablehlo.gather", "stablehlo.scatter"}
    for got, want in zip(
        evaluated(levels["float"], x), ordered(params, jnp.asarray(x)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("n", range(1, 33))
def test_a_network_brings_numbers_in_order(n: int) -> None:
    x = np.random.default_rng(n).integers(0, 2, (n, 4096))  # zeros and ones are enough
    want = np.sort(x, 0)
    for i, j in exchanges(n):
        x[[i, j]] = np.sort(x[[i, j]], 0)
    assert np.array_equal(x, want)
