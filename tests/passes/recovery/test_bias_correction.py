"""Bias correction: a shift computed by hand, exact where the error is a shift, never worse."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.frontends.model import Model
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.pipeline import load_pipeline
from jq.passes.qdq.place_weights import PlaceWeights
from jq.passes.recovery.bias_correction import BiasCorrection, shifts, user_with_bias
from jq.passes.recovery.gptq import Gptq
from jq.planning.operands import contractions
from tests.passes.recovery.models import context, mlp, normal

RNG = np.random.default_rng(11)
INT2 = {"weights.format": "int2"}
INT4 = {"weights.format": "int4"}


def outputs(program, data):
    run = XlaExecutable(program)
    return [np.concatenate(parts) for parts in zip(*(run(*x) for x in data), strict=True)]


def placed(program, cx):
    copy = program.clone()
    PlaceWeights().run(copy, cx)
    return copy


def biased(data, cx_settings=INT4, bias=True):
    def f(p, x):
        y = x @ p["w"]
        return y + p["b"] if bias else y

    params = {"w": normal(16, 8), "b": normal(8)}
    return context(Model(f, params, tuple(data[0])), "int8-weight-only", data, cx_settings)


def test_a_shift_by_hand():
    """int2, scale 1: the weights (0.4, -0.4, 1) become (0, 0, 1), and E[x] is (1, 2, 3): the mean
    error is -0.4 * 1 + 0.4 * 2 = 0.4."""
    w = np.array([[0.4], [-0.4], [1.0]], np.float32).repeat(2, 1)  # rows of one are stored as int8
    rows = np.array([[0, 1, 5], [2, 3, 1]], np.float32)
    model = Model(lambda p, x: x @ p["w"] + p["b"], {"w": w, "b": np.ones(2, np.float32)}, (rows,))
    program, cx = context(model, "int8-weight-only", [[rows]], INT2)
    found = shifts(program, cx, 0.5)
    np.testing.assert_allclose(found["w"].mean, [[0.4, 0.4]], rtol=1e-6)
    assert BiasCorrection().run(program, cx)
    (name,) = (n for n in program.weights if n.endswith(":bias"))
    np.testing.assert_allclose(program.weights[name], 0.6, rtol=1e-6)


def test_inputs_that_never_change_give_the_float_result():
    """Then all of the error is its mean."""
    row = RNG.standard_normal(16).astype(np.float32)
    data = [[np.tile(row, (4, 1))]]
    program, cx = biased(data)
    reference = outputs(program, data)[0]
    before = outputs(placed(program, cx), data)[0]
    assert BiasCorrection().run(program, cx)
    after = outputs(placed(program, cx), data)[0]
    assert np.abs(before - reference).max() > 0.01
    np.testing.assert_allclose(after, reference, atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_the_mean_of_outputs_is_that_of_the_float_model(bias):
    """Static activations, whose clipping shifts the mean too; with and without a bias."""
    data = [[np.maximum(RNG.standard_normal((64, 16)) + 1, 0).astype(np.float32)] for _ in range(4)]
    settings = INT4 | {"calibration.method": "minmax"}

    def f(p, x):
        return x @ p["w"] + p["b"] if bias else x @ p["w"]

    model = Model(f, {"w": normal(16, 8), "b": normal(8)}, tuple(data[0]))
    program, cx = context(model, "int8-static", data, settings)
    reference = outputs(program, data)[0].mean(0)
    assert BiasCorrection().run(program, cx)
    found = shifts(program, cx, 0.5)["w"]
    after = outputs(placed(program, cx), data)[0].mean(0)
    np.testing.assert_allclose(after, reference, atol=4e-3)  # the input's rounding is still to come
    assert np.abs(found.mean).max() > 0.02


def test_no_add_is_made_for_a_shift_of_no_weight():
    data = [[RNG.standard_normal((64, 16)).astype(np.float32)] for _ in range(4)]
    program, cx = biased(data, bias=False)
    text = program.text()
    BiasCorrection(share=0.5).run(program, cx)
    assert program.text() == text


def test_convolutions_groups_and_batches():
    """Strided, grouped, depthwise and transposed convolutions and a product a batch index: the
    mean over rows becomes that of the float model, as zeros of the padding count.

    A transposed convolution is one with more channels and a pixel shuffle: it has this mean over
    all that is shuffled. Here nothing is cut off.
    """

    def conv(x, w, groups=1, strides=(1, 1), padding=((1, 1), (1, 1)), **more):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, strides, padding, dimension_numbers=numbers, feature_group_count=groups, **more
        )

    def f(p, x):
        return {
            "plain": conv(x, p["plain"], 1, (2, 1)) + p["b"],
            "grouped": conv(x, p["grouped"], 2) + p["b"],
            "depthwise": jnp.maximum(conv(x, p["depthwise"], 8) + p["b"][:8], 0),
            "dilated": conv(x, p["dilated"], padding=((1, 2), (1, 2)), lhs_dilation=(2, 2)),
            "batched": jnp.einsum("bhwc,hco->bhwo", x, p["batched"]) + p["b"],
        }

    params = {
        "plain": normal(3, 3, 8, 12),
        "grouped": normal(3, 3, 4, 12),
        "depthwise": normal(3, 3, 1, 8),
        "dilated": normal(3, 3, 8, 12),
        "batched": normal(6, 8, 12),
        "b": normal(12),
    }
    data = [[(RNG.standard_normal((4, 6, 6, 8)) + 1).astype(np.float32)] for _ in range(2)]
    model = Model(f, params, tuple(data[0]))
    program, cx = context(model, "int8-weight-only", data, INT2)
    runs = outputs(program, data), outputs(placed(program, cx), data)
    assert BiasCorrection(power=0, share=0).run(program, cx)
    after = outputs(placed(program, cx), data)
    axes = {"batched": (0, 2)}  # a bias a batch index
    for i, output in enumerate(program.outputs):
        if "depthwise" in output.name:  # after a ReLU
            assert ((after[i] - runs[0][i]) ** 2).sum() < ((runs[1][i] - runs[0][i]) ** 2).sum()
            continue
        rows = next((a for k, a in axes.items() if k in output.name), (0, 1, 2))
        mean, plain, ours = (y[i].mean(rows) for y in (*runs, after))
        assert np.abs(ours - mean).max() < 1e-5 < 1e-2 < np.abs(plain - mean).max(), output.name


def test_rows_that_do_not_count():
    model, data = mlp()
    noisy = [[np.where(m[..., None] == 0, x + 50, x), m] for x, m in data]
    found = []
    for given in (data, noisy):
        program, cx = context(model, "int8-weight-only", given, INT4)
        found.append(shifts(program, cx, 0.5)["up"].mean)
    np.testing.assert_allclose(found[0], found[1], atol=1e-3 * np.abs(found[0]).max())


def test_it_measures_the_codes_that_were_chosen():
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data, INT4)
    plain = shifts(program, cx, 0.5)["up"].mean
    Gptq().run(program, cx)
    assert (shifts(program, cx, 0.5)["up"].mean != plain).any()


def test_loops_and_gathers_are_left_alone():
    def f(p, x, i):
        h = x @ p["w"] + p["table"][i]
        return jax.lax.scan(lambda c, w: (c @ w, None), h, p["stack"])[0]

    params = {"w": normal(16, 8), "table": normal(5, 8), "stack": normal(3, 8, 8)}
    data = [[RNG.standard_normal((4, 16)).astype(np.float32), np.arange(4, dtype=np.int32)]]
    program, cx = context(Model(f, params, tuple(data[0])), "int8-weight-only", data, INT4)
    assert list(shifts(program, cx, 0.5)) == ["w"]


def test_without_data_it_is_skipped_with_one_warning(caplog):
    model, _ = mlp()
    program, cx = context(model, "int8-weight-only", None, INT4 | {"recovery": "bias-correction"})
    with caplog.at_level(logging.WARNING, "jq"):
        assert not BiasCorrection().run(program, cx)
        assert not BiasCorrection().run(program, cx)
    assert caplog.text.count("(bias-correction, ...) are skipped") == 1


def test_it_is_in_the_pipelines_by_name():
    for pipeline in ("int8-static", "int4-weight-only", "int8-static-integer-only"):
        steps = load_pipeline(pipeline).passes["qdq"]
        assert any(isinstance(p, BiasCorrection) and p.optional for p in steps)


def test_what_a_bias_is():
    model, _ = mlp()
    program, _ = context(model, "int8-weight-only", None)
    assert all(user_with_bias(program, op) is None for op, _ in contractions(program))
