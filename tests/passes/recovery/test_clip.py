"""Clipping: never more error than the full range, by hand and against every choice."""

import logging

import jax.numpy as jnp
import numpy as np
import pytest

from jq.formats import NUMPY, get_format
from jq.frontends.model import Model
from jq.passes.recovery.clip import Clip
from tests.passes.recovery.models import context, mlp, normal

RNG = np.random.default_rng(13)


def decoded(program, name, cx):
    enc = cx.plan.weights[name]
    return np.asarray(get_format(enc.format).decode(NUMPY, program.chosen[name], enc))


def rounded(program, name, cx):
    enc = cx.plan.weights[name]
    fmt = get_format(enc.format)
    return np.asarray(fmt.decode(NUMPY, fmt.encode(program.weights[name], enc), enc))


def dense(weight, data=None, **settings):
    x = np.ones((2, len(weight)), np.float32)
    model = Model(lambda p, x: x @ p["w"], {"w": weight}, (x,))
    return context(model, "int8-weight-only", data, settings)


def test_by_hand():
    """int4, two equal columns: one weight of 7 and 1,000 of 0.4. With step 1 each of these errs by
    0.4; with 0.6 of the range the step is 0.6, 0.2 is left of each, and 2.8 of the one: 40 + 7.84
    instead of 160."""
    weight = np.full((1001, 2), 0.4, np.float32)
    weight[0] = 7
    program, cx = dense(weight, **{"weights.format": "int4"})
    assert Clip().run(program, cx)
    step = np.float32(7) * np.float32(0.6) / np.float32(7)
    assert (program.chosen["w"]["scale"] == step).all()
    np.testing.assert_array_equal(decoded(program, "w", cx)[:2, 0], [step * 7, step])


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("granularity", ["per-tensor", "per-channel", "per-block"])
@pytest.mark.parametrize("fmt", ["int2", "int4", "int8", "uint3_zero"])
def test_less_error_in_every_channel(scheme, granularity, fmt):
    scheme = "symmetric" if fmt == "uint3_zero" else scheme
    weight = RNG.standard_t(3, (96, 12)).astype(np.float32)
    settings = {"format": fmt, "scheme": scheme, "granularity": granularity}
    program, cx = dense(weight, **{f"weights.{k}": v for k, v in settings.items()})
    assert Clip().run(program, cx)
    ours, plain = (
        ((v - weight) ** 2).sum(0) for v in (decoded(program, "w", cx), rounded(program, "w", cx))
    )
    assert ours.sum() <= plain.sum()
    if granularity != "per-tensor":
        assert (ours <= plain * (1 + 1e-6)).all()
    if fmt == "int4" and granularity == "per-channel":
        assert ours.sum() < plain.sum()


def test_large_inputs_count_more():
    weight = normal(64, 8)
    x = RNG.standard_normal((32, 64)).astype(np.float32)
    x[:, :4] *= 30
    model = Model(lambda p, x: x @ p["w"], {"w": weight}, (x,))
    error = []
    for data in (None, [[x]]):
        program, cx = context(model, "int8-weight-only", data, {"weights.format": "int4"})
        Clip().run(program, cx)
        error.append(
            (((decoded(program, "w", cx) - weight) * (x**2).mean(0)[:, None] ** 0.5) ** 2).sum()
        )
    assert error[1] < error[0]


def test_embeddings_and_convolutions_and_what_others_chose(caplog):
    def f(p, x, i):
        return jnp.tanh(x @ p["w"]) @ p["v"] + p["table"][i]

    params = {"w": normal(16, 8), "v": normal(8, 8), "table": normal(20, 8)}
    data = [[RNG.standard_normal((4, 16)).astype(np.float32), np.arange(4, dtype=np.int32)]]
    model = Model(f, params, tuple(data[0]))
    program, cx = context(model, "int8-weight-only", data, {"weights.format": "int4"})
    program.chosen["v"] = chosen = {"codes": np.zeros(1)}
    with caplog.at_level(logging.INFO, "jq"):
        assert Clip().run(program, cx)
    assert program.chosen["v"] is chosen and set(program.chosen) == {"w", "v", "table"}
    assert "v is left as it is" in caplog.text


def test_formats_that_are_no_integers_are_left_alone():
    program, cx = dense(normal(32, 8), **{"weights.format": "float8_e4m3fn"})
    assert not Clip().run(program, cx) and not program.chosen


def test_a_scale_of_half_precision():
    program, cx = dense(
        normal(32, 8), **{"weights.format": "int4", "weights.scale_type": "float16"}
    )
    Clip().run(program, cx)
    assert program.chosen["w"]["scale"].dtype == np.float16
    assert ((decoded(program, "w", cx) - program.weights["w"]) ** 2).sum() <= (
        (rounded(program, "w", cx) - program.weights["w"]) ** 2
    ).sum()


def test_the_model_is_closer():
    from tests.passes.recovery.test_gptq import after, outputs

    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data, {"weights.format": "int4"})
    reference = outputs(program, data)
    plain = outputs(after(program, cx), data)
    Clip().run(program, cx)
    ours = outputs(after(program, cx), data)
    assert ((ours - reference) ** 2).sum() < ((plain - reference) ** 2).sum()
