"""AWQ: a case by hand, the float model unchanged, less error than plain rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline, make_plan, prepare, rewrite
from jq.passes.recovery.awq import Awq
from jq.planning.decisions import QuantPlan
from jq.target.rules import parse_rule
from tests.passes.recovery.models import TARGET, mlp, normal

RNG = np.random.default_rng(23)


def settings(name="int8-weight-only", **changes):
    chosen = {"weights.format": "int4", "min_elements": 1, "recovery": False}
    return load_pipeline(name, chosen | changes)


def scaled(program, data, pipeline=None, **options):
    pipeline = pipeline or settings(recovery="awq")
    copy = program.clone()
    cx = PassContext(QuantPlan((), {}), pipeline.settings, TARGET, data)
    changed = Awq(**options).run(copy, cx)
    copy.verify()
    return copy, changed


def outputs(program, data):
    run = XlaExecutable(program)
    return [np.concatenate(parts) for parts in zip(*(run(*x) for x in data), strict=True)]


def quantized(program, pipeline):
    plan = make_plan(program, pipeline, TARGET)
    return rewrite(program, pipeline, PassContext(plan, pipeline.settings, TARGET))["integer"]


def error(program, data, reference, pipeline):
    return sum(
        ((a - b) ** 2).sum()
        for a, b in zip(outputs(quantized(program, pipeline), data), reference, strict=True)
    )


def test_by_hand():
    """One column (1, 0.4) in int2, whose step is 1: it becomes (1, 0). The second channel is 16
    times larger. With t = 1/2, s = (1/2, 2): (0.5, 0.8) with step 0.8 becomes (0.8, 0.8), which
    stands for (1.6, 0.4): the outlier channel is exact."""
    params = {"w": np.array([[1.0], [0.4]], np.float32)}
    x = np.array([[1, 16], [-1, 16], [1, -16], [-1, -16]], np.float32)
    program = trace(Model(lambda p, x: x @ p["w"], params, (x,)))
    pipeline = settings(recovery="awq", **{"weights.format": "int2"})
    copy, changed = scaled(program, [[x]], pipeline, steps=2)
    assert changed
    np.testing.assert_allclose(copy.weights["w"], [[0.5], [0.8]], rtol=1e-6)
    np.testing.assert_allclose(copy.weights["w:inverse"], [2, 0.5], rtol=1e-6)


@pytest.mark.parametrize("granularity", ["per-channel", "per-block"])
def test_the_float_program_is_the_same_and_the_quantized_one_better(granularity):
    model, data = mlp()
    pipeline = settings(recovery="awq", **{"weights.granularity": granularity})
    program = prepare(trace(model), settings(), TARGET)
    copy, changed = scaled(program, data, pipeline)
    assert changed
    reference = outputs(program, data)
    largest = np.abs(reference[0]).max()
    np.testing.assert_allclose(outputs(copy, data)[0], reference[0], atol=1e-5 * largest)
    plain = settings(**{"weights.granularity": granularity})
    assert error(copy, data, reference, plain) < error(program, data, reference, plain)


def test_what_stands_behind_takes_the_division():
    """A bias and ReLU: no op is added."""

    def f(p, x):
        return jax.nn.relu(x @ p["w"] + p["b"]) @ p["v"]

    outliers = np.ones(16, np.float32)
    outliers[3] = 40
    params = {"w": normal(8, 16) * outliers, "b": normal(16), "v": normal(16, 8)}
    data = [[RNG.standard_normal((32, 8)).astype(np.float32)] for _ in range(2)]
    program = trace(Model(f, params, tuple(data[0])))
    count = sum(1 for op in program.walk() if op.operation.name == "stablehlo.multiply")
    copy, changed = scaled(program, data, insert=False)
    assert changed and (copy.weights["w"] != program.weights["w"]).any()
    assert sum(1 for op in copy.walk() if op.operation.name == "stablehlo.multiply") == count
    got, want = outputs(copy, data)[0], outputs(program, data)[0]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(1, np.abs(want).max()))


def test_convolutions_and_readers_of_one_value():
    def conv(x, w, groups=1):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
        )

    def f(p, x):
        y = jnp.tanh(x) * p["outliers"]
        return conv(y, p["plain"]) + conv(y, p["grouped"], 2), conv(y, p["depthwise"], 8), y

    outliers = np.exp2(np.arange(8)).astype(np.float32)
    params = {
        "outliers": outliers,
        "plain": normal(3, 3, 8, 12),
        "grouped": normal(3, 3, 4, 12),
        "depthwise": normal(3, 3, 1, 8),
    }
    data = [[RNG.standard_normal((2, 6, 6, 8)).astype(np.float32)] for _ in range(2)]
    program = trace(Model(f, params, tuple(data[0])))
    copy, changed = scaled(program, data)
    assert changed
    ratio = copy.weights["plain"] / program.weights["plain"]
    assert (np.diff(ratio[0, 0, :, 0]) > 0).all()  # larger channels, larger weights
    reference = outputs(program, data)
    for a, b in zip(outputs(copy, data), reference, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max())
    assert error(copy, data, reference, settings()) < error(program, data, reference, settings())


def test_rules_decide_how_weights_are_stored():
    """What a rule keeps float is left alone, with everything that reads the same input."""
    model, data = mlp()
    program = prepare(trace(model), settings(), TARGET)
    pipeline = load_pipeline("int8-weight-only", {"recovery": "awq", "weights.format": "int4"})
    rules = (parse_rule("side: float"),)
    copy = program.clone()
    cx = PassContext(QuantPlan((), {}), pipeline.settings, TARGET, data, rules=rules)
    Awq().run(copy, cx)
    np.testing.assert_array_equal(copy.weights["up"], program.weights["up"])


def test_static_ranges_and_missing_data(caplog):
    model, data = mlp()
    program = prepare(trace(model), settings(), TARGET)
    static = load_pipeline("int8-weight-only", {
        "activations.format": "int8", "activations.mode": "static",
        "activations.granularity": "per-tensor"})  # fmt: skip
    assert not scaled(program, data, static)[1] and "`smooth` weighs both" in caplog.text
    assert not scaled(program, None)[1] and "without calibration data" in caplog.text
