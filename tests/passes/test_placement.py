"""One model through each placement: how the results relate, and what is refused."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq import api
from jq.base.errors import UserError
from jq.ir import dtype_of
from jq.ir.build import NAME, string_attr
from jq.ir.markers import QUANTIZE, match
from jq.ir.oracle.xla import XlaExecutable
from tests.support.encoder import build_random
from tests.support.noise import bound
from tests.support.programs import evaluated

pytestmark = pytest.mark.usefixtures("quick_xla")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 8, 8, 3)).astype(np.float32)
PARAMS = {
    "a": RNG.standard_normal((3, 3, 3, 8)).astype(np.float32) / 5,
    "b": RNG.standard_normal((3, 3, 8, 8)).astype(np.float32) / 8,
    "bias": RNG.standard_normal(8).astype(np.float32),
    "c": RNG.standard_normal((128, 10)).astype(np.float32) / 11,
}


def conv(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def network(p, x):
    """Convolution, pooling, a residual sum of two branches, and a product of what is joined."""
    x = pool(jax.nn.relu(conv(x, p["a"]) + p["bias"]))
    x = x + jax.nn.relu(conv(x, p["b"]))
    return x.transpose(0, 3, 1, 2).reshape(2, -1) @ p["c"]


BATCHES = [(s * X,) for s in (0.5, 1, 0.8)]
MODELS = {
    "network": jq.Model(network, PARAMS, (X,), calibration=BATCHES, evaluation=BATCHES),
    "encoder": build_random(layers=1),
}
PLACEMENTS = ("early", "hybrid", "late")


@cache
def levels(model, placement):
    """Weights are rounded to the nearest: what recovery makes of them depends on no placement."""
    settings = {"placement": placement, "recovery": False}
    return jq.rewrite(MODELS[model], pipeline="int8-static", settings=settings)


@cache
def outputs(model, placement, level="integer"):
    calls = api.trace(MODELS[model]).calls(MODELS[model].evaluation)
    run = XlaExecutable(levels(model, placement)[level])
    return np.concatenate([run(*x)[0].ravel() for x in calls]).astype(np.float64)


def contractions(program):
    ops = [op for op in program.walk() if string_attr(op, NAME) is not None]
    kinds = ("stablehlo.convolution", "stablehlo.dot_general")
    return {
        string_attr(op, NAME): tuple(str(dtype_of(v)) for v in op.operation.operands)
        for op in ops
        if op.operation.name in kinds
    }


@pytest.mark.parametrize("model", MODELS)
def test_every_placement_multiplies_the_same_integers(model):
    """The same contractions on int8, with the same codes of weights."""
    found = [levels(model, p)["integer"] for p in PLACEMENTS]
    kinds = [contractions(program) for program in found]
    assert kinds[0] == kinds[1] == kinds[2]
    assert set(kinds[0].values()) == {("int8", "int8")}
    for name, codes in found[2].weights.items():
        if name.endswith(":codes"):
            assert all(np.array_equal(codes, p.weights[name]) for p in found)


@pytest.mark.parametrize("model", MODELS)
def test_hybrid_is_late_to_the_bit(model):
    """Quantization goes through moves and maxima without changing a code. Then a convolution that
    it stands behind gives codes at once, with a rounding less.
    """
    assert np.array_equal(outputs(model, "hybrid", "qdq"), outputs(model, "late", "qdq"))
    late = outputs(model, "late")  # that rounding is one of those that the noise comes from
    moved = np.sum((outputs(model, "hybrid") - late) ** 2)
    assert moved <= bound(levels(model, "late")["integer"]) * np.sum(late**2)
    text = {p: levels(model, p)["integer"].text() for p in ("hybrid", "late")}
    assert text["hybrid"] != text["late"]


@pytest.mark.parametrize("model", MODELS)
def test_later_is_closer_to_float(model):
    """Each tensor more that is rounded is a source of noise more."""
    want = outputs(model, "late", "float")
    noise = {p: np.sum((outputs(model, p) - want) ** 2) for p in PLACEMENTS}
    most = bound(levels(model, "early")["integer"]) * np.sum(want**2)
    assert noise["late"] <= noise["early"] <= most


def codes_at(placement, name):
    """The codes that enter a contraction, for the first batch."""
    program = levels("network", placement)["integer"].clone()
    op = next(op for op in program.walk() if string_attr(op, NAME) == name)
    program.return_values([op.operands[0]])
    return evaluated(program, X)[0]


def test_codes_at_contractions():
    """The input is quantized alike; what follows may differ by the rounding of a rescale."""
    first = [codes_at(p, "a") for p in PLACEMENTS]
    assert np.array_equal(first[0], first[1]) and np.array_equal(first[1], first[2])
    early, hybrid, late = (codes_at(p, "b").astype(int) for p in PLACEMENTS)
    assert np.abs(hybrid - late).max() <= 1 and len(np.unique(late)) > 100
    assert np.abs(early - late).max() <= 1


def test_early_leaves_no_float_between_codes():
    kinds = {
        op.operation.name.removeprefix("stablehlo.")
        for op in levels("network", "early")["integer"].walk()
        if op.operation.results and dtype_of(op.operation.results[0]).kind == "f"
    }
    assert not kinds & {"convolution", "dot_general", "reduce_window", "transpose", "reshape"}


def test_pooling_works_on_codes_in_hybrid():
    (op,) = (
        op
        for op in levels("network", "hybrid")["integer"].walk()
        if op.operation.name == "stablehlo.reduce_window"
    )
    # The residual sum reads the codes of the pooling as well.
    assert dtype_of(op.operation.results[0]) == np.int8

    def chain(p, x):
        return conv(pool(jax.nn.relu(conv(x, p["a"]))), p["b"])

    model = jq.Model(chain, PARAMS, (X,), calibration=BATCHES)
    found = jq.rewrite(model, pipeline="int8-static")
    (op,) = (op for op in found["integer"].walk() if op.operation.name == "stablehlo.reduce_window")
    assert dtype_of(op.operation.results[0]) == np.int8
    assert sum(match(op, QUANTIZE) is not None for op in found["qdq"].walk()) == 2


REFUSED = [
    ("int8-weight-only", "early", "whose activations stay float"),
    ("int8-dynamic", "early", "needs ranges before the program runs"),
    ("int8-static-integer-only", "late", "is integer-only"),
    ("int8-static", "middle", "placement"),
]


@pytest.mark.parametrize(("pipeline", "placement", "reason"), REFUSED)
def test_what_makes_no_sense_is_refused(pipeline, placement, reason):
    with pytest.raises(UserError, match=reason):
        jq.plan(MODELS["network"], pipeline=pipeline, settings={"placement": placement})


def test_a_target_without_floats_has_codes_early():
    found = jq.rewrite(MODELS["network"], pipeline="int8-static", target="npu-int8")
    early = jq.rewrite(
        MODELS["network"],
        pipeline="int8-static",
        target="npu-int8",
        settings={"placement": "early"},
    )
    assert found["integer"].text() == early["integer"].text()
    with pytest.raises(UserError, match="has no floats for placement=late"):
        jq.plan(
            MODELS["network"],
            pipeline="int8-static",
            target="npu-int8",
            settings={"placement": "late"},
        )


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_explain_says_why_floats_are_read(placement):
    settings = {"placement": placement, "convolution_sums": "float"}
    rows = api.explain(MODELS["network"], pipeline="int8-static", settings=settings)["dequantized"]
    assert rows and all(row["reason"] for row in rows)
    readers = {row["op"] for row in rows}
    named = {row["tensor"] for row in rows}
    assert not named & set(PARAMS)  # what a weight gives is not called as the weight is
    returned = {row["reason"] for row in rows if row["op"] == "func.return"}
    assert returned <= {"it is an output, which is float as in the model"}
    assert not any("placement=hybrid" in row["reason"] for row in rows)
    if placement == "early":
        assert readers == {"func.return"}
    else:
        assert {"add", "maximum"} <= readers
        assert "in integers with --set placement=early" in rows[0]["reason"]
