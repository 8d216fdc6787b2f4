"""Equalization: factors by hand, the float model unchanged to the bit, pairs found by dataflow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.model import Model
from jq.oracle.xla import XlaExecutable
from jq.passes.base import PassContext
from jq.passes.qdq.place_weights import PlaceWeights
from jq.passes.recovery._pairs import find_pairs
from jq.passes.recovery.equalize import Equalize
from jq.pipeline import load_pipeline
from jq.planning import QuantPlan
from jq.tracing.entry import trace
from tests.recovery.models import TARGET, context, normal

RNG = np.random.default_rng(17)
SETTINGS = load_pipeline("int8-weight-only", {"weights.granularity": "per-tensor"}).settings


def conv(x, w, groups=1):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def pool(x):
    return jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def uneven(*shape):
    """Output channels of very different sizes."""
    return normal(*shape) * np.exp2(RNG.integers(-6, 7, shape[-1])).astype(np.float32)


def equalized(program, **options):
    copy = program.clone()
    changed = Equalize(**options).run(copy, PassContext(QuantPlan((), {}), SETTINGS, TARGET))
    copy.verify()
    return copy, changed


def test_factors_by_hand():
    """Rows that read are 1 and 1, columns that make 4 and 1/16: s = sqrt(4) and sqrt(1/16)."""
    params = {"w1": np.array([[4, 1 / 16], [2, 0]], np.float32), "w2": np.eye(2, dtype=np.float32)}
    x = np.ones((3, 2), np.float32)
    program = trace(Model(lambda p, x: jax.nn.relu(x @ p["w1"]) @ p["w2"], params, (x,)))
    copy, changed = equalized(program, strengths=(1.0,))
    assert changed
    np.testing.assert_array_equal(copy.weights["w1"], [[2, 1 / 4], [1, 0]])
    np.testing.assert_array_equal(copy.weights["w2"], [[2, 0], [0, 1 / 4]])


def chain(p, x):
    """Every kind of step: bias, ReLU, depthwise, residual sum, pooling, groups, flattening."""
    y = jax.nn.relu(conv(x, p["a"]) + p["bias"])
    y = jax.nn.relu(conv(y, p["depth"], 16) + p["bias"])
    y = conv(y, p["left"]) + conv(x, p["right"])
    y = conv(jax.nn.relu(y), p["grouped"], 4)
    y = pool(jax.nn.relu(conv(y, p["last"]) + p["bias"]))
    return y.reshape(len(y), -1) @ p["head"] + p["out"]


CHAIN = {
    "a": uneven(3, 3, 8, 16),
    "bias": normal(16),
    "depth": uneven(3, 3, 1, 16),
    "left": uneven(1, 1, 16, 16),
    "right": uneven(1, 1, 8, 16),
    "grouped": uneven(3, 3, 4, 16),
    "last": uneven(3, 3, 16, 16),
    "head": normal(3 * 3 * 16, 10),
    "out": normal(10),
}
IMAGES = RNG.standard_normal((2, 6, 6, 8)).astype(np.float32)


def test_the_float_program_is_unchanged_to_the_bit():
    program = trace(Model(chain, CHAIN, (IMAGES,)))
    pairs = [(set(p.makers), set(p.readers)) for p in find_pairs(program)]
    assert pairs == [
        ({"a"}, {"depth"}),
        ({"depth"}, {"left"}),
        ({"left", "right"}, {"grouped"}),
        ({"grouped"}, {"last"}),
        ({"last"}, {"head"}),
    ]
    copy, changed = equalized(program)
    assert changed
    np.testing.assert_array_equal(XlaExecutable(copy)(IMAGES)[0], XlaExecutable(program)(IMAGES)[0])


def test_channels_are_even_afterwards():
    """What makes a channel and what reads it are within a factor of two, in every pair."""
    copy, _ = equalized(
        trace(Model(chain, CHAIN, (IMAGES,))), strengths=(1.0,), gain=0.0, sweeps=50
    )
    for pair in find_pairs(copy):
        sizes = []
        for side in (pair.makers, pair.readers):
            largest = np.zeros(pair.width)
            for name, channels in side.items():
                w = np.abs(copy.weights[name])
                np.maximum.at(largest, np.broadcast_to(channels, w.shape), w)
            sizes.append(largest)
        ratio = sizes[0] / sizes[1]
        assert ratio.min() > 0.49, pair.makers
        assert ratio.max() < 2.01, pair.makers


def test_better_with_one_scale_a_tensor():
    data = [[IMAGES]]
    settings = {"weights.granularity": "per-tensor", "recovery": False}
    error = []
    for run in (False, True):
        program, cx = context(Model(chain, CHAIN, (IMAGES,)), "int8-weight-only", data, settings)
        reference = XlaExecutable(program)(IMAGES)[0]
        if run:
            program, _ = equalized(program)
        PlaceWeights().run(program, cx)
        error.append(((XlaExecutable(program)(IMAGES)[0] - reference) ** 2).sum())
    assert error[1] < 0.1 * error[0]


def test_several_readers_and_transposed_weights():
    def f(p, x):
        y = jax.nn.relu(p["first"] @ x.T).T
        return y @ p["u"].T, jnp.einsum("bi,ind->bnd", y, p["heads"])

    params = {"first": uneven(8, 16).T, "u": normal(5, 16), "heads": normal(16, 2, 3)}
    x = RNG.standard_normal((4, 8)).astype(np.float32)
    program = trace(Model(f, params, (x,)))
    copy, changed = equalized(program)
    assert changed and (copy.weights["heads"] != program.weights["heads"]).any()
    for a, b in zip(XlaExecutable(program)(x), XlaExecutable(copy)(x), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("step", ["gelu", "relu6", "read elsewhere", "shared", "returned"])
def test_what_cannot_be_is_left_alone(step, caplog):
    def f(p, x):
        y = x @ p["w"]
        if step == "gelu":
            return jax.nn.gelu(y) @ p["v"]
        if step == "relu6":
            return jax.nn.relu6(y) @ p["v"]
        if step == "shared":
            return jax.nn.relu(y) @ p["w"]
        y = jax.nn.relu(y)
        return y @ p["v"], (y if step == "returned" else y.sum())

    params = {"w": uneven(16, 16), "v": normal(16, 16)}
    program = trace(Model(f, params, (np.ones((2, 16), np.float32),)))
    copy, changed = equalized(program)
    assert not changed and copy.text() == program.text()
    assert "equalize was skipped" in caplog.text
