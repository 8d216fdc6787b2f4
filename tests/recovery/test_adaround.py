"""AdaRound: by hand, near the best of all choices, better than nearest rounding."""

import itertools
import logging

import numpy as np
import pytest

from jq.autodiff.rounding import learn_rounding
from jq.formats import Encoding, get_format
from jq.passes.recovery._solve import error
from jq.passes.recovery.adaround import AdaRound
from jq.passes.recovery.gptq import Gptq
from tests.recovery.models import context, mlp
from tests.recovery.test_gptq import after, outputs

RNG = np.random.default_rng(19)
INT4 = {"weights.format": "int4"}
QUICK = {"steps": 200, "rate": 0.2, "strength": 2.0}


def correlated(rows, width):
    x = RNG.standard_normal((rows, width)) @ RNG.standard_normal((width, width))
    return (x.T @ x).astype(np.float64)


def learned(weight, gram, limits=(-7, 7), zero=0.0):
    ones = np.ones_like(weight)
    return learn_rounding(weight, gram, ones, zero * ones, limits, **QUICK)


def test_two_rows_by_hand():
    """x = (a, a): only the sum counts, so 0.4 + 0.4 becomes 0 + 1 or 1 + 0."""
    weight, gram = np.array([[0.4], [0.45]], np.float32), np.ones((2, 2)) + 1e-3 * np.eye(2)
    assert learned(weight, gram).tolist() == [[0], [1]]


def test_independent_rows_are_rounded_to_the_nearest():
    weight = RNG.uniform(-6, 6, (16, 8)).astype(np.float32)
    np.testing.assert_array_equal(learned(weight, np.eye(16)), np.rint(weight))


def test_near_the_best_of_all_choices():
    """Six rows: the best of 64 roundings up or down, for 40 columns."""
    weight, gram = RNG.uniform(-3, 3, (6, 40)).astype(np.float32), correlated(40, 6)

    def losses(codes):
        d = np.asarray(codes, np.float64) - weight
        return (d * (gram @ d)).sum(0)

    choices = itertools.product((0, 1), repeat=6)
    best = np.min([losses(np.floor(weight) + np.array(up)[:, None]) for up in choices], axis=0)
    ours, nearest = losses(learned(weight, gram)), losses(np.rint(weight))
    assert (ours >= best * (1 - 1e-6)).all()
    assert (ours - best).sum() < 0.25 * (nearest - best).sum()


def test_codes_stay_within_their_limits():
    weight = RNG.uniform(-9, 9, (8, 4)).astype(np.float32)
    codes = learned(weight, correlated(30, 8), (-7, 7), zero=2.0)
    assert codes.min() >= -7 and codes.max() <= 7


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("block", [0, 16])
def test_better_than_nearest(scheme, block, caplog):
    weight, gram = RNG.standard_normal((40, 12)).astype(np.float32), correlated(200, 40)
    enc = Encoding("int4", weight.shape, (block, 1), scheme, "float16")
    with caplog.at_level(logging.INFO, "jq"):
        found = AdaRound(steps=200).solve("w", weight, gram, enc)
    plain = AdaRound(steps=0).solve("w", weight, gram, enc)
    assert error(found, weight, gram) < 0.7 * error(plain, weight, gram)
    low, high = get_format("int4").limits(enc)
    assert found.codes.min() >= low and found.codes.max() <= high
    assert "of the error of plain rounding" in caplog.text


def test_the_output_is_closer():
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data, INT4)
    reference = outputs(program, data)
    plain = outputs(after(program, cx), data)
    assert AdaRound(steps=100).run(program, cx)
    assert sorted(cx.encoded) == ["down", "side", "up"]
    ours = outputs(after(program, cx), data)
    assert ((ours - reference) ** 2).sum() < 0.7 * ((plain - reference) ** 2).sum()


def test_what_another_pass_chose_stays():
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data, INT4)
    AdaRound(steps=10).run(program, cx)
    before = dict(cx.encoded)
    assert not Gptq().run(program, cx) and cx.encoded == before
