"""Products of the same codes are one product, with the bits that they had."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.ir.decisions import facts_of
from jq.passes.base import PassContext
from jq.passes.pipeline import make_plan, rewrite
from tests.passes.test_kernel_passes import Both, array
from tests.support.steps import assert_one_code, moved

pytestmark = pytest.mark.usefixtures("quick_xla")

B, S, H, KV, D = 2, 6, 4, 2, 8
X = array(B, S, 32)


def attention(p, x, bias=True):
    """GQA: q is wider than k and v."""
    parts = [x @ p[n] + (p[f"b{n}"] if bias else 0) for n in "qkv"]
    q = parts[0].reshape(B, S, KV, H // KV, D)
    k, v = (t.reshape(B, S, KV, D) for t in parts[1:])
    scores = jnp.einsum("bskgd,btkd->bkgst", q, k) * D**-0.5
    weights = jax.nn.softmax(scores)
    return jnp.einsum("bkgst,btkd->bskgd", weights, v).reshape(B, S, H * D) @ p["o"]


PARAMS = {"q": array(32, H * D) / 6, "k": array(32, KV * D) / 6, "v": array(32, KV * D)}
PARAMS |= {f"b{n}": array(PARAMS[n].shape[1]) for n in "qkv"}
PARAMS |= {"o": array(H * D, 32), "up": array(32, 48), "gate": array(32, 17)}


@pytest.mark.parametrize(("pipeline", "bias"), [("int8-dynamic", False), ("int8-static", True)])
def test_an_attention_reads_its_columns_of_one_product(pipeline, bias):
    both = Both(lambda p, x: attention(p, x, bias), PARAMS, (X,), pipeline)
    text = both.levels["target"].text()
    assert text.count("call @jq_gemm_12x32x64_") == 1
    assert text.count("call @jq_gemm") == 2  # that, and the output's
    assert both.facts("merged") == {"q": ("k", "v"), "k": ("q", "v"), "v": ("q", "k")}
    assert len({both.facts("kernel")[n] for n in "qkv"}) == 1
    assert both.facts("kernel")["q"] in text
    calls = [line for line in text.splitlines() if "call @" in line]
    call = next(line for line in calls if "attention_2x4x6x6x8" in line)
    assert call.count("tensor<2x6x64x") == 3
    if pipeline == "int8-static":
        assert_one_code(both.found[0], both.expected[0])
    else:
        # Codes of what the output's product reads may come out as the next ones. Its range is that
        # of the float attention but for what 8 bits of q, k and v change, less than a tenth.
        inner = attention(PARAMS | {"o": np.eye(H * D, dtype=np.float32)}, X, bias)
        most = 1.1 * moved(np.asarray(inner), PARAMS["o"])
        assert (np.abs(both.found[0] - both.expected[0]) <= most).all()


def test_what_elementwise_ops_read_is_cut_there():
    """Any widths; every part has its own scales; the bits do not change."""

    def fn(p, x):
        return jnp.sin(x @ p["up"]), jnp.cos(x @ p["gate"]), jnp.exp(x @ p["v"])

    for pipeline in ("int8-dynamic", "int8-static"):
        both = Both(fn, PARAMS, (X,), pipeline)
        assert both.levels["target"].text().count("call @jq_gemm_12x32x81_") == 1
        assert both.facts("merged")["up"] == ("gate", "v")
        for found, expected in zip(both.found, both.expected, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "fn",
    [
        lambda p, x: (jnp.sin(x @ p["up"]), jnp.cos(jnp.tanh(x) @ p["gate"])),  # other codes
        lambda p, x: (x @ p["up"], x @ p["gate"]),  # results of the program would be copies
        lambda p, x: (jnp.sin(x @ p["up"]), jnp.sin(x @ p["gate"] + x[..., :17])),  # a residual
        lambda p, x: (jnp.sin(x @ p["up"]), jnp.sin(jax.nn.relu(x @ p["gate"]))),  # other steps
        lambda p, x: (jnp.sin(x @ p["up"]), jnp.sin(x @ p["v"][:, :5])),  # narrow
        lambda p, x: (jax.nn.relu(x @ p["up"]) @ p["up"].T, jax.nn.relu(x @ p["q"]) @ p["q"]),
    ],
)
def test_products_that_stay_apart(fn):
    job = prepare_job(
        jq.Model(fn, PARAMS, (X,)), Request("int8-dynamic", "llvm-cpu", {"recovery": False})
    )
    plan = make_plan(job.program, job.pipeline, job.target, None)
    cx = PassContext(plan, job.pipeline.settings, job.target, job.data)
    target = rewrite(job.program, job.pipeline, cx)["target"]
    text = target.text()
    assert facts_of(target, "merged") == {} and text.count("call @jq_gemm") >= 2
