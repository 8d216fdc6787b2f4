"""One program computes every choice, as the passes would: groups, switches, rules, single ops."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.progress import Stages
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.mixed_precision.candidates import make_candidates
from jq.mixed_precision.problem import Problem, check_rules, make_problem, rules_of, with_rules
from jq.passes.pipeline import make_plan, rewrite
from tests.support.programs import evaluated


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng((seed, *shape))
    return (rng.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)


def attention(params: Any, x: Any) -> Any:
    q, k, v = (x @ params[name] for name in "qkv")
    scores = jax.nn.softmax(q @ k.swapaxes(-1, -2))
    return (scores @ v) @ params["o"], scores


def stacked(params: Any, x: Any) -> Any:
    def layer(h: Any, w: Any) -> Any:
        return jnp.tanh(h @ w["up"]) @ w["down"] + h, None

    return jax.lax.scan(layer, x, params["layers"])[0] @ params["head"]


def tied(params: Any, ids: Any) -> Any:
    return jnp.tanh(params["table"][ids] @ params["w"]) @ params["table"].T


def image(params: Any, x: Any) -> Any:
    numbers = jax.lax.conv_dimension_numbers(x.shape, params["c"].shape, ("NHWC", "HWIO", "NHWC"))
    y = jax.lax.conv_general_dilated(x, params["c"], (2, 2), "SAME", dimension_numbers=numbers)
    return jax.nn.relu(y).reshape(x.shape[0], -1) @ params["e"]


MODELS = {
    "attention": (attention, {k: normal(32, 32, seed=i) for i, k in enumerate("qkvo")}),
    "stacked": (
        stacked,
        {"layers": {"up": normal(3, 32, 64), "down": normal(3, 64, 32)}, "head": normal(32, 8)},
    ),
    "tied": (tied, {"table": normal(40, 32), "w": normal(32, 32)}),
    "image": (image, {"c": normal(3, 3, 5, 7), "e": normal(63, 11)}),
    "bfloat16": (attention, {k: jnp.asarray(normal(32, 32), jnp.bfloat16) for k in "qkvo"}),
}


def inputs(name: str) -> tuple[np.ndarray]:
    if name == "tied":
        return (np.arange(9, dtype=np.int32),)
    if name == "image":
        return (normal(2, 6, 6, 5),)
    return (np.asarray(normal(2, 8, 32), jnp.bfloat16 if name == "bfloat16" else np.float32),)


def problem_of(name: str, pipeline: str = "int8-dynamic", *candidates: str) -> Problem:
    fn, params = MODELS[name]
    model = jq.Model(fn, params, inputs(name), calibration=[inputs(name)])
    job = prepare_job(model, Request(pipeline, "llvm-cpu"))
    usual = make_candidates(candidates, job.pipeline.settings, pipeline)
    return make_problem(job, usual, Stages())


def test_ops_that_share_a_weight_are_one_group() -> None:
    groups = {g.ops: g for g in problem_of("tied").groups}
    assert sorted(map(len, groups)) == [1, 2]
    (shared,) = [g for ops, g in groups.items() if len(ops) == 2]
    assert shared.weights == ("table",)
    exact, int8 = shared.options[:2]
    assert exact.stored_bytes == 4 * 40 * 32
    assert 40 * 32 < int8.stored_bytes < 40 * 32 + 16 * 40


def test_options_are_what_the_candidates_differ_in() -> None:
    groups = problem_of("attention").groups
    names = {len(g.weights): [o.name for o in g.options] for g in groups}
    assert names[0] == ["float", "int8-dynamic+products"]
    weighted = ["float", "int8-dynamic", "int4", "int8-weight-only", "int4-weight-only"]
    assert names[1] == weighted
    weight = next(g for g in groups if g.weights)
    assert [o.work / 8**2 for o in weight.options] == pytest.approx(
        [2 * 8 * 32 * 32 * bits for bits in (16, 1, 0.5, 16, 16)]
    )


def test_a_loop_counts_every_iteration() -> None:
    groups = {g.weights: g for g in problem_of("stacked").groups}
    assert groups["layers/up",].options[0].work == 3 * 2 * 8 * 32 * 64 * 32**2


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        *((name, "int8-dynamic") for name in MODELS),
        ("stacked", "int8-static"),
        ("image", "int8-static"),
    ],
)
def test_switches_compute_what_the_passes_make(name: str, pipeline: str) -> None:
    candidates = () if pipeline == "int8-static" else ("float", pipeline, "bfloat16", "int4")
    problem = problem_of(name, pipeline, *candidates)
    switch, job = problem.switch(), problem.job
    draw = random.Random(0)
    for _ in range(2):
        choice = tuple(draw.randrange(len(g.options)) for g in problem.groups)
        rules = rules_of(job, problem.groups, choice)
        check_rules(job, problem.groups, choice, rules)
        changed = with_rules(job, rules)
        plan = make_plan(job.program, changed.pipeline, job.target, job.ranges)
        cx = changed.context(plan)
        expected = evaluated(rewrite(job.program, changed.pipeline, cx)["qdq"], *inputs(name))
        (found,) = switch.run(choice, [inputs(name)])
        for got, want in zip(found, expected, strict=True):
            # The same values in another program: XLA may order sums otherwise, and a rounding
            # that turns over is one step of 8 bits in one of many terms.
            error = np.linalg.norm(got.astype(np.float64) - want.astype(np.float64))
            assert error <= 2e-3 * np.linalg.norm(want.astype(np.float64))


def test_switched_off_it_is_the_float_program() -> None:
    problem = problem_of("attention")
    switch = problem.switch()
    calls = [inputs("attention")]
    (quantized,) = switch.run([len(g.options) - 1 for g in problem.groups], calls)
    exact = evaluated(problem.job.program, *calls[0])
    for got, want, other in zip(*switch.run(None, calls), exact, quantized, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        assert np.abs(other - want).max() > 1e-4


def test_a_name_that_is_another_ops_scope() -> None:
    def twice(params: Any, x: Any) -> Any:
        y = x @ params["dot_general"]  # known by its weight, as the other op by its scope
        return y @ y.T

    x = (normal(8, 8),)
    model = jq.Model(twice, {"dot_general": normal(8, 8)}, x)
    job = prepare_job(model, Request("int8-dynamic", "llvm-cpu"))
    usual = make_candidates((), job.pipeline.settings, "int8-dynamic")
    problem = make_problem(job, usual, Stages())
    assert len(problem.groups) == 2
    for choice in [(0, 1), (1, 0), (2, 0), (2, 1)]:
        rules = rules_of(job, problem.groups, choice)
        check_rules(job, problem.groups, choice, rules)
