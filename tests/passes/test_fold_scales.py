"""fold-scales: the same function up to rounding, and no multiply left where it can go."""

from __future__ import annotations

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq import api
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.passes.base import PassContext, make_pass
from jq.passes.pipeline import load_pipeline, prepare
from jq.planning.decisions import QuantPlan
from jq.target.target import load_target
from tests.support.programs import evaluated

CONV = ("NHWC", "HWIO", "NHWC")


def run(fn, params, *inputs):
    """The prepared program's ops by name, its weights, and both results."""
    model = jq.Model(fn, params, inputs)
    job = prepare_job(model, Request("float", "llvm-cpu"))
    before = evaluated(job.source.program, *inputs)[0]
    after = evaluated(job.program, *inputs)[0]
    ops = [op.operation.name.removeprefix("stablehlo.") for op in job.program.walk()]
    return ops, job.program, before, after


def draw(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def norm(p, x):
    return (x - p["mean"]) * (p["gamma"] * jax.lax.rsqrt(p["var"] + 1e-5)) + p["beta"]


def stats(n):
    rng = np.random.default_rng(n)
    return {k: rng.uniform(0.5, 2, n).astype(np.float32) for k in ("mean", "gamma", "var", "beta")}


def close(before, after):
    """A few float32 roundings of sums of about a hundred terms."""
    return np.abs(before - after).max() <= 64 * np.finfo(np.float32).eps * np.abs(before).max()


@pytest.mark.parametrize("groups", [1, 4])
def test_batch_norm_becomes_weight_and_bias(groups):
    def fn(p, x):
        y = jax.lax.conv_general_dilated(
            x, p["w"], (1, 1), "SAME", dimension_numbers=CONV, feature_group_count=groups
        )
        return norm(p["norm"], y)

    params = {"w": draw(3, 3, 4 // groups, 8), "norm": stats(8)}
    ops, program, before, after = run(fn, params, draw(2, 6, 6, 4))
    assert ops == ["convolution", "broadcast_in_dim", "add", "func.return"]
    assert sorted(a.shape for a in program.weights.values()) == [(3, 3, 4 // groups, 8), (8,)]
    assert close(before, after)


@pytest.mark.parametrize("spec", ["ab,bc->ac", "ab,cb->ac", "bc,ab->ca", "nab,nbc->nac"])
def test_products_of_every_layout(spec):
    """The factor runs along the weight's axis wherever the result has it."""
    sizes = {"a": 3, "b": 5, "c": 4, "n": 2}
    lhs, rhs = (tuple(sizes[i] for i in part) for part in spec.split("->")[0].split(","))
    weight_first = spec == "bc,ab->ca"
    x_shape, w_shape = (rhs, lhs) if weight_first else (lhs, rhs)
    out = spec.split("->")[1]
    vector = [4 if i == "c" else 1 for i in out]

    def fn(p, x):
        operands = (p["w"], x) if weight_first else (x, p["w"])
        y = jnp.einsum(spec, *operands)
        return (y + p["b"].reshape(vector)) / p["d"].reshape(vector) - 2.0

    params = {"w": draw(*w_shape), "b": draw(4), "d": stats(4)["var"]}
    ops, _, before, after = run(fn, params, draw(*x_shape))
    assert "divide" not in ops and "subtract" not in ops and ops.count("add") == 1
    assert close(before, after)


def test_leaves_what_others_read():
    """A product that is also a result keeps its weight; so does a weight read twice."""

    def fn(p, x):
        y = x @ p["w"]
        return y * p["g"] + jnp.sum(y) + jnp.sum(p["w"])

    params = {"w": draw(4, 4), "g": draw(4)}
    ops, program, before, after = run(fn, params, draw(2, 4))
    assert "multiply" in ops and np.array_equal(program.weights["w"], params["w"])
    assert close(before, after)


def test_a_factor_of_another_axis_stays():
    """Rows of the activation have factors of their own: no weight can take them."""
    params = {"w": draw(4, 4), "g": draw(2, 1)}
    ops, _, before, after = run(lambda p, x: x @ p["w"] * p["g"], params, draw(2, 4))
    assert "multiply" in ops and np.array_equal(before, after)


def test_resnet_has_no_multiply_left():
    model = import_module("jq.models.zoo.resnet").build(depth=14, width=8, image=32, classes=10)
    job = prepare_job(model, Request("float", "llvm-cpu"))
    names = [op.operation.name for op in job.program.walk()]
    assert not {"stablehlo.multiply", "stablehlo.subtract", "stablehlo.rsqrt"} & set(names)
    x = job.data[0] if job.data else [np.ones((1, 32, 32, 3), np.float32)]
    before, after = (evaluated(p, *x)[0] for p in (job.source.program, job.program))
    assert np.abs(before - after).max() <= 1e-4 * np.abs(before).max()


def test_nothing_to_do_says_so():
    params = {"w": draw(4, 4), "b": draw(4)}
    model = jq.Model(lambda p, x: x @ p["w"] + p["b"], params, (draw(2, 4),))
    program = api.trace(model).program
    pipeline, target = load_pipeline("float"), load_target("llvm-cpu")
    prepared = prepare(program, pipeline, target)
    cx = PassContext(QuantPlan((), {}), pipeline.settings, target)
    assert not make_pass("fold-scales", {}).run(prepared, cx)
