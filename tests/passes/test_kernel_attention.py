"""Attention however it is written: one kernel, with the values of the integer level."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.ir import shape_of
from jq.ir.values import kind_of
from jq.kernels import Attention
from jq.kernels.attention.description import TILED_QUERIES
from jq.passes.base import PassContext
from jq.passes.kernels._kernel import described
from jq.passes.kernels.attention._attention import find_softmax
from jq.passes.pipeline import make_plan, rewrite
from tests.passes.test_kernel_passes import Both, array
from tests.support.steps import assert_one_code

pytestmark = pytest.mark.usefixtures("quick_xla")

B, S, H, KV, D = 2, 7, 4, 2, 8
WIDTH = H * D
DOT = "stablehlo.dot_general"
PARAMS = {n: array(WIDTH, WIDTH) / 6 for n in "qkv"} | {"o": np.eye(WIDTH, dtype=np.float32)}
PARAMS |= {n: array(WIDTH, KV * D) / 6 for n in ("k2", "v2")}
CAUSAL = np.arange(S)[:, None] >= np.arange(S)


def heads(p, x):
    return [jnp.reshape(x @ p[n], (B, S, H, D)) for n in "qkv"]


def grouped(p, x):
    """Two heads of q for each of k and v."""
    q, k, v = (x @ p[n] for n in ("q", "k2", "v2"))
    return q.reshape(B, S, H, D), k.reshape(B, S, KV, D), v.reshape(B, S, KV, D)


def out(p, y):
    """Through a product, so that the result is quantized where ranges are known."""
    return jnp.reshape(y, (B, S, WIDTH)) @ p["o"]


def encoder(p, x, keep):
    q, k, v = heads(p, x)
    scores = jnp.einsum("bqnd,bknd->bnqk", q, k) / np.sqrt(D)
    weights = jax.nn.softmax(scores + ((1 - keep) * -1e4)[:, None, None, :])
    return out(p, jnp.einsum("bnqk,bknd->bqnd", weights, v))


def decoder(p, x, keep):
    q, k, v = heads(p, x)
    scores = jnp.einsum("bqnd,bknd->bnqk", q * D**-0.5, k)
    weights = jax.nn.softmax(jnp.where(CAUSAL, scores, -jnp.inf))
    return out(p, jnp.einsum("bnqk,bknd->bqnd", weights, v))


def shared_heads(p, x, keep):
    q, k, v = grouped(p, x)
    q = q.reshape(B, S, KV, H // KV, D)
    scores = jnp.einsum("bskgd,btkd->bkgst", q, k) * D**-0.5
    weights = jax.nn.softmax(jnp.where(CAUSAL, scores, -1e30))
    return out(p, jnp.einsum("bkgst,btkd->bskgd", weights, v))


def repeated_heads(p, x, keep):
    q, k, v = grouped(p, x)
    k, v = (jnp.repeat(t, H // KV, axis=2) for t in (k, v))
    scores = jnp.einsum("bqnd,bknd->bnqk", q, k) + jnp.where(CAUSAL, 0, -1e9)
    return out(p, jnp.einsum("bnqk,bknd->bqnd", jax.nn.softmax(scores), v))


def heads_first(p, x, keep):
    q, k, v = (t.transpose(0, 2, 1, 3) for t in heads(p, x))
    weights = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / np.sqrt(D))
    return out(p, (weights @ v).transpose(0, 2, 1, 3))


def of_the_library(p, x, keep):
    q, k, v = grouped(p, x)
    return out(p, jax.nn.dot_product_attention(q, k, v, is_causal=True))


def biased_heads(p, x, keep):
    """Attention with a bias that differs from head to head."""
    q, k, v = heads(p, x)
    slopes = jnp.asarray([0.5, 0.25, 0.125, 0.0625])
    bias = -slopes[:, None, None] * jnp.abs(jnp.arange(S)[:, None] - jnp.arange(S))
    weights = jax.nn.softmax(jnp.einsum("bqnd,bknd->bnqk", q, k) / np.sqrt(D) + bias)
    return out(p, jnp.einsum("bnqk,bknd->bqnd", weights, v))


def one_sample(p, x, keep):
    def apply(x):
        q, k, v = (jnp.reshape(x @ p[n], (S, H, D)) for n in "qkv")
        weights = jax.nn.softmax(jnp.einsum("qnd,knd->nqk", q, k) / np.sqrt(D))
        return jnp.einsum("nqk,knd->qnd", weights, v).reshape(S, WIDTH)

    return out(p, jax.vmap(apply)(x))


SPELLINGS = (
    encoder,
    decoder,
    shared_heads,
    repeated_heads,
    heads_first,
    of_the_library,
    biased_heads,
    one_sample,
)
KEEP = (np.arange(S) < [[S], [4]]).astype(np.float32)


def kernels_of(fn: Callable, pipeline: str) -> Both:
    return Both(fn, PARAMS, (array(B, S, WIDTH), KEEP), pipeline)


@pytest.mark.parametrize("fn", SPELLINGS, ids=lambda f: f.__name__)
def test_codes(fn) -> None:
    """With calibrated ranges. A probability within the kernel's bound can have another code where
    it lies next to a tie; that moves a sum by little, and its code by one."""
    both = kernels_of(fn, "int8-static")
    assert both.families == {"gemm", "integer"}
    assert not both.facts("no_kernel")
    assert_one_code(both.found[0], both.expected[0])


@pytest.mark.parametrize("fn", SPELLINGS, ids=lambda f: f.__name__)
def test_floats(fn) -> None:
    """Without quantization of activations, in float32: roundings alone differ."""
    both = Both(
        fn, PARAMS, (array(B, S, WIDTH), KEEP), "int8-dynamic", attention_precision="float32"
    )
    assert both.families == {"gemm", "attention"}
    assert_near(both)


def assert_near(both: Both) -> None:
    """One more rounding to codes follows, of rows that differ by a few roundings."""
    (expected,), (found,) = both.expected, both.found
    assert np.abs(found - expected).max() < 1.01 * np.ptp(expected, axis=-1).max() / 255


def test_narrow_floats_are_computed_in_float32():
    def fn(p, x, keep):
        p = {n: w.astype(jnp.bfloat16) for n, w in p.items()}
        return encoder(p, x.astype(jnp.bfloat16), keep.astype(jnp.bfloat16)).astype(jnp.float32)

    assert kernels_of(fn, "int8-dynamic").families == {"gemm", "attention"}


@pytest.mark.parametrize(
    "change",
    [
        lambda s: jnp.where(CAUSAL, s, -50.0),
        lambda s: 30 * jnp.tanh(s / 30),
        lambda s: jnp.where(CAUSAL, s, -jnp.inf) + 0.1 * CAUSAL,
    ],
    ids=["a fill that counts", "a function of the scores", "two masks"],
)
def test_what_is_another_function_stays(change) -> None:
    def fn(p, x, keep):
        q, k, v = heads(p, x)
        scores = change(jnp.einsum("bqnd,bknd->bnqk", q, k))
        return out(p, jnp.einsum("bnqk,bknd->bqnd", jax.nn.softmax(scores), v))

    for pipeline in ("int8-static", "int8-dynamic"):
        both = kernels_of(fn, pipeline)
        assert not both.families & {"integer", "attention"}
        if pipeline == "int8-static":
            assert_one_code(both.found[0], both.expected[0])
        else:
            assert_near(both)


@pytest.mark.parametrize(
    ("isa", "precision"), [("amx_int8", "bf16"), ("avx512_bf16", "bf16"), ("avx512_vnni", "f32")]
)
def test_products_are_in_bf16_where_the_processor_has_them(isa: str, precision: str) -> None:
    """Matrix tiles are one way to have them; nothing is run, so any machine can tell."""
    rows = TILED_QUERIES
    inputs = (array(B, rows, WIDTH), np.ones((B, rows), np.float32))

    def fn(p, x, keep):
        q, k, v = (jnp.reshape(x @ p[n], (B, rows, H, D)) for n in "qkv")
        y = jax.nn.dot_product_attention(q, k, v, mask=keep[:, None, None, :] > 0)
        return jnp.reshape(y, (B, rows, WIDTH)) @ p["o"]

    model = jq.Model(fn, PARAMS, inputs)
    job = prepare_job(
        model, Request("int8-dynamic", "llvm-cpu", {"attention_precision": "bfloat16"})
    )
    target = job.target.model_copy(update={"kernels": isa})
    plan = make_plan(job.program, job.pipeline, target, None)
    cx = PassContext(plan, job.pipeline.settings, target, job.data)
    program = rewrite(job.program, job.pipeline, cx)["target"]
    kernels = [described(program, op) for op in program.walk()]
    (kernel,) = [kernel for kernel in kernels if isinstance(kernel, Attention)]
    assert kernel.precision == precision
    assert kernel.on_tiles == (isa == "amx_int8")


def test_a_logarithm_that_is_lost_beside_a_mask_is_no_part_of_a_softmax():
    """Each of a row's scores is the lowest float: each is e^0 then, and not a share of 1."""

    def fn(p, q, k):
        s = jnp.einsum("bqnd,bknd->bnqk", q, k)
        top = s.max(-1, keepdims=True)
        return jnp.exp(s - (top + jnp.log(jnp.exp(s - top).sum(-1, keepdims=True))))

    program = jq.trace(jq.Model(fn, {}, (array(1, S, 1, D), array(1, S, 1, D)))).program
    (scores,) = (op.results[0] for op in program.walk() if kind_of(op) == DOT)
    assert find_softmax(program, scores) is None


@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (-1e30, None), (None, 1e30), (-1e30, 1e30)])
@pytest.mark.parametrize("rows", [S, 1])
def test_limits_on_scores_are_no_part_of_a_softmax(low, high, rows):
    """However far away they are: rows that are hidden as a whole are their mean, not NaN."""
    shape = (1, 1, rows, S)

    def between(p, q, k):
        return jax.nn.softmax(jnp.clip(jnp.einsum("bqnd,bknd->bnqk", q, k), low, high))

    def plain(p, q, k):
        return jax.nn.softmax(jnp.einsum("bqnd,bknd->bnqk", q, k))

    found = []
    for fn in (between, plain):
        program = jq.trace(jq.Model(fn, {}, (array(1, rows, 1, D), array(1, S, 1, D)))).program
        (scores,) = (op.results[0] for op in program.walk() if kind_of(op) == DOT)
        assert tuple(shape_of(scores)) == shape
        found.append(find_softmax(program, scores) is not None)
    assert found == [False, True]
