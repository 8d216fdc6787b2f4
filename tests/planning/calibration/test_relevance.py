"""Rows that never reach the output do not widen a range; everything else does."""

import jax
import numpy as np
import pytest

from jq.base.errors import UserError
from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.planning.calibration import run
from jq.planning.calibration.run import calibrate

pytestmark = pytest.mark.usefixtures("quick_xla")

RNG = np.random.default_rng(4)
W = RNG.standard_normal((8, 8)).astype(np.float32)


def program_of(f):
    x, mask = np.zeros((2, 4, 8), np.float32), np.zeros((2, 4), np.float32)
    return trace(Model(f, {"w": W, "v": W.T.copy()}, (x, mask)))


def masked(p, x, mask):
    return ((x * 1.5 @ p["w"] @ p["v"]) * mask[:, :, None]).sum(1)


def batch(value, kept=(1, 1, 0, 0)):
    x = RNG.uniform(-1, 1, (2, 4, 8)).astype(np.float32)
    x[:, 2:] *= value
    return [x, np.array([kept, kept], np.float32)]


@pytest.mark.parametrize("method", ["minmax", "mse"])
def test_masked_rows_are_left_out(method):
    program, data = program_of(masked), [batch(100)]
    every = calibrate(program, data, method)
    ours = calibrate(program, data, method, relevant=True)
    for site in ours.sites:
        assert ours.sites[site].high < 30 < every.sites[site].high, site
    x = data[0][0][:, :2] * np.float32(1.5)
    assert ours.sites["w:0"].low == x.min() and ours.sites["w:0"].high == x.max()


def test_rows_are_left_out_of_what_numpy_measures(monkeypatch):
    """As of what XLA does; the program itself has no masks then."""
    texts, found, data = [], [], [batch(100)]
    made = run.XlaExecutable
    monkeypatch.setattr(run, "XlaExecutable", lambda p: texts.append(p.text()) or made(p))
    for most in (0, run.NUMBERS):
        monkeypatch.setattr(run, "NUMBERS", most)
        found.append(calibrate(program_of(masked), data, "percentile", relevant=True))
    assert found[0].text() == found[1].text()
    assert ["select" in text for text in texts] == [True, False]


def test_rows_that_count_stay():
    program, data = program_of(masked), [batch(100, (1, 1, 1, 1))]
    assert calibrate(program, data, relevant=True).sites == calibrate(program, data).sites


def test_rows_count_of_which_one_number_moves_the_output():
    program, data = program_of(lambda p, x, mask: x * 1.5 @ (p["w"] * np.eye(8)[:1].T)), [batch(9)]
    assert calibrate(program, data, relevant=True).sites == calibrate(program, data).sites


def test_rows_count_however_small_their_gradients_are():
    """Squares of 1e-25 are no floats; another output has gradients near 1."""

    def two(p, x, mask):
        return (x * 1.5 @ p["w"]) * 1e-25, x * 2.5 @ p["v"]

    program, data = program_of(two), [batch(100)]
    assert calibrate(program, data, relevant=True).sites == calibrate(program, data).sites


def test_rows_count_whose_gradients_have_no_square_in_float16():
    program = trace(Model(halves, {"w": W.astype(np.float16)}, (np.zeros((4, 8), np.float16),)))
    data = [[RNG.uniform(-1, 1, (4, 8)).astype(np.float16)]]
    assert calibrate(program, data, relevant=True).sites == calibrate(program, data).sites


def halves(p, x):
    """Gradients of 1e-5 for all rows but the first, which alone would have the range."""
    large = jax.numpy.array([1, 1e-5, 1e-5, 1e-5], np.float16)
    return (x * 1.5 @ p["w"]) * large[:, None]


def test_what_a_loop_gives_counts():
    """Also where it is not the loop's first result, which is its counter."""

    def recurrent(p, x, mask):
        rows = (x @ p["w"]).swapaxes(0, 1)
        start = jax.numpy.zeros((2, 8))
        last, _ = jax.lax.scan(lambda c, row: (jax.numpy.tanh(c + row), None), start, rows)
        return last @ p["v"]

    program, data = program_of(recurrent), [batch(1)]
    every = calibrate(program, data).sites
    assert every["v:0"].high > 0.1
    assert calibrate(program, data, relevant=True).sites == every


def test_a_batch_without_any_effect_counts_as_a_whole():
    program, data = program_of(masked), [batch(2, (0, 0, 0, 0))]
    assert calibrate(program, data, relevant=True).sites == calibrate(program, data).sites


def test_what_has_no_gradient_counts(caplog):
    def loop(p, x, mask):
        return jax.lax.fori_loop(0, 3, lambda _, c: c @ p["w"] * 0.1, x) * mask[:, :, None]

    program, data = program_of(loop), [batch(2)]
    assert calibrate(program, data, relevant=True).sites == calibrate(program, data).sites


def test_nan_is_not_masked_away():
    data = batch(1)
    data[0][0, 0, 0] = np.nan
    with pytest.raises(UserError, match="NaN or infinity in sample 0"):
        calibrate(program_of(masked), [data], relevant=True)


def test_what_is_rounded_counts_beside_what_moves_the_output():
    """Floors and places of maxima have no gradient; their ranges had shrunk to nothing."""

    def two(p, x, mask):
        return jax.numpy.argmax(x * 1.5 @ p["w"], -1), jax.numpy.floor(x * 2) * 3 @ p["v"]

    program, data = program_of(two), [batch(1)]
    every = calibrate(program, data).sites
    assert every["w:0"].high > 1
    assert calibrate(program, data, relevant=True).sites == every


def test_an_expert_that_a_batch_does_not_choose_takes_no_rows_of_others():
    """Tokens that the other one gets are 50 times larger."""

    def experts(p, x, mask):
        first = jax.nn.relu(x @ p["w"]) @ p["v"] * mask[:, :, None]
        return first + jax.nn.relu(x @ p["v"]) @ p["w"] * (1 - mask[:, :, None])

    program, data = program_of(experts), [batch(50, (1, 1, 0, 0)), batch(50, (0, 0, 0, 0))]
    data[1][0] *= 50
    one, both = (calibrate(program, data[:n], relevant=True).sites for n in (1, 2))
    assert both["v:0"] == one["v:0"] and one["v:0"].high < 20 < both["w#2:0"].high
