"""Bias correction: a shift computed by hand, exact where the error is a shift, never worse, and as
far as calls agree."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jq.frontends.model import Model
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.pipeline import load_pipeline
from jq.passes.qdq.place_weights import PlaceWeights
from jq.passes.recovery import bias_correction
from jq.passes.recovery.bias_correction import BiasCorrection, shifts, user_with_bias
from jq.passes.recovery.gptq import Gptq
from jq.planning.operands import contractions
from tests.passes.recovery.models import context, mlp, normal

RNG = np.random.default_rng(11)
NAMED = {"recovery": ["bias-correction"]}
INT2 = {"weights.format": "int2"} | NAMED
INT4 = {"weights.format": "int4"} | NAMED


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


def test_few_numbers_are_summed_by_numpy_to_the_same_bits(monkeypatch):
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data, INT4)
    texts, found = [], []
    made = bias_correction.XlaExecutable
    monkeypatch.setattr(
        bias_correction, "XlaExecutable", lambda p: texts.append(p.text()) or made(p)
    )
    for most in (0, bias_correction.NUMBERS):
        monkeypatch.setattr(bias_correction, "NUMBERS", most)
        found.append(shifts(program, cx, 0.5))
    inside, outside = found
    assert inside.keys() == outside.keys()
    for name, shift in inside.items():
        np.testing.assert_array_equal(shift.mean, outside[name].mean)
        assert shift.share == outside[name].share
    assert ["stablehlo.round" in text for text in texts] == [True, False]


@pytest.mark.parametrize("apart", [2, 4, 8])
def test_what_calls_differ_by_is_chance(apart):
    """The weights of `test_a_shift_by_hand`: the errors of two calls of one row are 0.4 * (1 and
    1 + apart), their mean 0.4 * (1 + apart / 2), whose squared error is (0.2 * apart)^2."""
    w = np.array([[0.4], [-0.4], [1.0]], np.float32).repeat(2, 1)
    calls = [[np.array([[0, 1 + d, 2]], np.float32)] for d in (0, apart)]
    model = Model(lambda p, x: x @ p["w"], {"w": w}, tuple(calls[0]))
    mean, chance = 0.4 * (1 + apart / 2), (0.2 * apart) ** 2
    found = shifts(*context(model, "int8-weight-only", calls, INT2), 0.0)["w"].mean
    np.testing.assert_allclose(found, mean - chance / mean, rtol=1e-5)


def test_what_calls_do_not_agree_on_is_left_alone():
    w = np.array([[0.4], [-0.4], [1.0]], np.float32).repeat(2, 1)
    calls = [[np.array([[0, d, 2]], np.float32)] for d in (-3, 4)]
    model = Model(lambda p, x: x @ p["w"] + p["b"], {"w": w, "b": normal(2)}, tuple(calls[0]))
    program, cx = context(model, "int8-weight-only", calls, INT2)
    text, before = program.text(), dict(program.weights)
    BiasCorrection(power=0).run(program, cx)
    assert program.text() == text
    assert all((program.weights[n] == a).all() for n, a in before.items())


def test_rows_of_one_call_are_what_is_counted_where_there_is_no_other():
    """The mean of 64 rows keeps most of itself, that of two rows which disagree nothing."""
    rng, w = np.random.default_rng(5), np.array([[0.4], [-0.4], [1.0]], np.float32).repeat(2, 1)
    for count, kept in ((2, False), (64, True)):
        rows = np.zeros((count, 3), np.float32)
        rows[:, 1] = [-3, 4] if count == 2 else 1 + rng.standard_normal(count)
        rows[0, 2] = 2
        model = Model(lambda p, x: x @ p["w"], {"w": w}, (rows,))
        found = shifts(*context(model, "int8-weight-only", [[rows]], INT2), 0.0)["w"].mean
        errors = 0.4 * rows[:, 1].astype(np.float64)
        share = max(0, 1 - errors.var() / count / errors.mean() ** 2)
        np.testing.assert_allclose(found, errors.mean() * share, rtol=1e-5, atol=1e-12)
        assert (share > 0.9) == kept and (share > 0) == kept


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
    data = [[(RNG.standard_normal((4, 6, 6, 8)) + 1).astype(np.float32)]] * 2  # no chance in it
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
    data = data[:1] * 2  # all but chance
    noisy = [[np.where(m[..., None] == 0, x + 50, x), m] for x, m in data]
    found = []
    for given in (data, noisy):
        program, cx = context(model, "int8-weight-only", given, INT4)
        found.append(shifts(program, cx, 0.5)["up"].mean)
    assert found[0].any()
    np.testing.assert_allclose(found[0], found[1], atol=1e-3 * np.abs(found[0]).max())


def test_it_measures_the_codes_that_were_chosen():
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data[:1] * 2, INT4)  # all but chance
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
    program, cx = context(model, "int8-weight-only", None, INT4)
    with caplog.at_level(logging.WARNING, "jq"):
        assert not BiasCorrection().run(program, cx)
        assert not BiasCorrection().run(program, cx)
    assert caplog.text.count("(bias-correction, ...) are skipped") == 1


def test_it_is_in_the_pipelines_by_name():
    for pipeline in ("int8-static", "int4-weight-only", "int8-static-integer-only"):
        loaded = load_pipeline(pipeline, NAMED)
        (own,) = (p for p in loaded.passes["qdq"] if isinstance(p, BiasCorrection))
        assert own.chosen(loaded.settings)


@pytest.mark.parametrize("bias", [True, False])
def test_by_default_no_add_is_made(bias):
    """A call costs what it did; named, the same mean is worth an `add`."""
    rows = np.maximum(RNG.standard_normal((64, 16)) + 1, 0).astype(np.float32)
    data, settings = [[rows]] * 2, INT4 | {"calibration.method": "minmax"}
    model = Model(
        lambda p, x: x @ p["w"] + p["b"] if bias else x @ p["w"],
        {"w": normal(16, 8), "b": normal(8)},
        (rows,),
    )
    adds = []
    for more in ({"recovery": True}, NAMED):
        program, cx = context(model, "int8-static", data, settings | more)
        before = outputs(program, data)[0]
        BiasCorrection().run(program, cx)
        adds.append(program.text().count("stablehlo.add"))
        changed = (outputs(program, data)[0] != before).any()
        assert changed == (bias or more is NAMED)
    assert adds == [bias, True]


def test_what_a_bias_is():
    model, _ = mlp()
    program, _ = context(model, "int8-weight-only", None)
    assert all(user_with_bias(program, op) is None for op, _ in contractions(program))
