"""Smoothing: the float program stays what it is, to the bit; the quantized one gets better."""

import logging

import jax.numpy as jnp
import numpy as np
import pytest

from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline, make_plan, prepare, rewrite
from jq.passes.recovery._smoothing import Weighted, factors
from jq.passes.recovery.smooth import Smooth, find_groups
from jq.planning.calibration.run import calibrate
from jq.planning.decisions import QuantPlan
from jq.planning.moments.collect import Moments
from tests.passes.recovery.models import TARGET, context, mlp, normal

RNG = np.random.default_rng(7)
STATIC = load_pipeline("int8-static", {"calibration.relevant": True})


def outputs(program, data):
    run = XlaExecutable(program)
    return np.concatenate([run(*x)[0] for x in data])


def prepared(model):
    """Without the pipeline's own recovery: there is no data."""
    return prepare(trace(model), STATIC, TARGET)


def smoothed(program, data, **options):
    copy = program.clone()
    cx = PassContext(QuantPlan((), {}), STATIC.settings, TARGET, data)
    changed = Smooth(**options).run(copy, cx)
    copy.verify()
    return copy, changed


def test_the_float_program_is_unchanged():
    model, data = mlp()
    program = prepared(model)
    copy, changed = smoothed(program, data)
    assert changed
    before, after = outputs(program, data), outputs(copy, data)
    np.testing.assert_array_equal(after, before)
    ratio = copy.weights["up"] / program.weights["up"]
    np.testing.assert_array_equal(np.exp2(np.rint(np.log2(ratio))), ratio)
    assert (ratio[[3, 7]] > ratio[0]).all()  # the outlier channels


def test_the_quantized_program_is_closer():
    model, data = mlp()
    error = []
    for program in (prepared(model), smoothed(prepared(model), data)[0]):
        plan = make_plan(program, STATIC, TARGET, calibrate(program, data, relevant=True))
        levels = rewrite(program, STATIC, PassContext(plan, STATIC.settings, TARGET))
        error.append(((outputs(levels["integer"], data) - outputs(program, data)) ** 2).sum())
    assert error[1] < error[0]


def test_branches_that_read_one_value_share_factors():
    model, data = mlp()
    program = prepared(model)
    sizes = sorted(len(g.readers) for g in find_groups(program))
    assert sizes == [1, 2]
    copy, _ = smoothed(program, data)
    up, side = (copy.weights[k] / program.weights[k] for k in ("up", "side"))
    np.testing.assert_array_equal(up[:, 0], side[:, 0])


def test_other_readers_get_the_value_as_it_was():
    def f(p, x):
        n = x * p["gamma"]
        return n @ p["w"] + n

    gamma = np.ones(16, np.float32)
    gamma[2] = 100
    model = Model(f, {"gamma": gamma, "w": normal(16, 16)}, (np.zeros((8, 16), np.float32),))
    data = [[RNG.standard_normal((8, 16)).astype(np.float32)] for _ in range(3)]
    program = prepared(model)
    copy, changed = smoothed(program, data)
    assert changed and any(name.endswith(":inverse") for name in copy.weights)
    np.testing.assert_array_equal(outputs(copy, data), outputs(program, data))


def test_transposed_weights_and_shared_ones():
    def f(p, x):
        y = (x * p["gamma"]) @ p["t"].T
        return jnp.tanh(y) @ p["shared"] + y @ p["shared"]

    gamma = np.ones(16, np.float32)
    gamma[5] = 64
    params = {"gamma": gamma, "t": normal(16, 16), "shared": normal(16, 16)}
    model = Model(f, params, (np.zeros((8, 16), np.float32),))
    data = [[RNG.standard_normal((8, 16)).astype(np.float32)] for _ in range(3)]
    program = prepared(model)
    copy, _ = smoothed(program, data)
    np.testing.assert_array_equal(copy.weights["shared"], program.weights["shared"])
    assert (copy.weights["t"] != program.weights["t"]).any()
    np.testing.assert_array_equal(outputs(copy, data), outputs(program, data))


def ends(rows):
    """Extremes of rows that are one sample."""
    return rows[None].min(1), rows[None].max(1)


def test_factors_by_hand():
    """Two channels, four columns of ones, the second channel 16 times larger; rounding = 0.2.

    s = (1, 1):   mean range^2 1288.25 / 255^2 * 8  +  0.2 * 4 / 127^2 * 1285   = 0.2222
    s = (1/2, 2): mean range^2 329    / 255^2 * 17  +  0.2 * 16 / 127^2 * 340   = 0.1535
    s = (1/4, 4): 0.2181
    """
    rows = np.array([[3, 48], [-3, -48], [1, 16], [-1, 16]], np.float32)
    share = np.full(4, 0.25)
    m = Moments(share @ rows**2, 1.0, share @ rows, *ends(rows), rows, share)
    s, gain = factors([Weighted(m, np.ones((2, 4)))], static=False, rounding=0.2, count=10**6)
    np.testing.assert_array_equal(s, [0.5, 2])
    assert gain == pytest.approx(0.2222 / 0.1535, rel=1e-3)


def test_a_static_range_is_of_all_rows():
    """One row is large in the first channel, all others in the second: static, both hold back."""
    rows = np.ones((100, 2), np.float32)
    rows[0] = 64, 1
    share = np.full(100, 0.01)
    m = Moments(share @ rows**2, 1.0, share @ rows, *ends(rows), rows, share)
    product = [Weighted(m, np.ones((2, 4)))]
    static, _ = factors(product, static=True, rounding=0.2, count=10**6)
    dynamic, _ = factors(product, static=False, rounding=0.2, count=10**6)
    assert static[0] / static[1] > dynamic[0] / dynamic[1] >= 1


def test_a_channel_that_was_silent_in_few_rows_may_speak_up():
    """Dead after a ReLU in three rows: the factor of a channel at most 4 times quieter."""
    rows = np.tile(np.array([8, 4, 4, 4, 4, 0], np.float32), (3, 1))
    share = np.full(3, 1 / 3)
    m = Moments(share @ rows**2, 1.0, share @ rows, *ends(rows), rows, share)
    product = [Weighted(m, np.ones((6, 4)))]
    few, _ = factors(product, static=True, rounding=0.0, count=3)
    many, _ = factors(product, static=True, rounding=0.0, count=10**6)
    assert few[1] / few[5] <= 4 < many[1] / many[5]


def test_quiet_channels_are_left_alone():
    model, data = mlp()
    model.params["gamma"][:] = 1
    program = prepared(model)
    copy, _ = smoothed(program, data, gain=3.0)
    np.testing.assert_array_equal(copy.weights["up"], program.weights["up"])


def test_without_data_it_is_skipped_with_a_warning(caplog):
    model, _ = mlp()
    with caplog.at_level(logging.WARNING, "jq"):
        assert not smoothed(prepared(model), None)[1]
    assert "(smooth, ...) are skipped" in caplog.text


def test_nothing_to_do_where_activations_stay_float():
    model, data = mlp()
    program, cx = context(model, "int8-weight-only", data)
    assert not Smooth().run(program, cx)


def test_wide_activations_take_more_of_what_is_loud_in_weights():
    """As far as their own steps allow: there are 256 times more of them with 16 bits."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (64, 8)).astype(np.float32)
    share = np.full(64, 1 / 64)
    m = Moments(share @ rows**2, 1.0, share @ rows, *ends(rows), rows, share)
    weight = rng.uniform(-1, 1, (8, 16))
    weight[1] *= 64
    left = {}
    for bits in (8, 16):
        s, _ = factors([Weighted(m, weight)], static=True, rounding=1.0, count=10**6, bits=bits)
        left[bits] = s[1] / s[2]
    assert left[16] <= left[8] / 2, left


def test_a_column_that_is_small_beside_the_others_is_not_lost():
    """One from 2^30 on would have its loud channels shared; the column of 1 has only noise then."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (64, 8)).astype(np.float32)
    share = np.full(64, 1 / 64)
    m = Moments(share @ rows**2, 1.0, share @ rows, *ends(rows), rows, share)
    loud = np.exp2(30 + 2 * np.arange(8.0))
    product = Weighted(m, np.stack([rng.uniform(0.5, 1, 8), loud], 1))
    s, gain = factors([product], static=True, rounding=1.0, count=10**6, bits=16)
    columns = (product.weight * s[:, None]).max(0) / 127
    noise = columns**2 / 12 * (m.gram / s**2).sum()
    assert gain > 1 and (noise < 0.1**2 * (m.gram @ product.weight**2)).all(), s


def layer(rng, rows, scale, columns=32):
    """dB of a layer of 32 normal channels on other rows, without smoothing and with it."""
    weight = (rng.standard_normal((32, columns)) / 6).astype(np.float32)
    seen, other = (rng.standard_normal((n, 32)) * scale for n in (rows, 4000))
    share = np.ones(rows)
    m = Moments(share @ seen**2, rows, share @ seen, *ends(seen), seen, share)
    s, gain = factors([Weighted(m, weight)], static=True, rounding=1.0, count=rows)
    found = []
    for by in (np.ones(32), s if gain >= Smooth.gain else np.ones(32)):
        w, low, high = weight * by[:, None], min(0, (seen / by).min()), (seen / by).max()
        w = np.rint(w / (step := np.abs(w).max(0) / 127)) * step
        x = np.rint((other / by).clip(low, high) / (step := (high - low) / 255)) * step
        noise = np.square(x @ w - other @ weight).sum()
        found.append(10 * np.log10(np.square(other @ weight).sum() / noise))
    return found


@pytest.mark.parametrize("columns", [1, 8, 256])
@pytest.mark.parametrize("rows", [8, 32, 128])
def test_few_rows_are_not_learned_by_heart(rows, columns):
    """Channels that are all alike differ in what few rows show of them."""
    for seed in range(10):
        without, smooth = layer(np.random.default_rng((rows, seed)), rows, np.ones(32), columns)
        assert smooth > without - 0.3, seed


def test_outlier_channels_are_smoothed_by_what_many_rows_say():
    scale = np.ones(32)
    scale[[3, 7]] = 25
    gains = [np.diff(layer(np.random.default_rng(i), 1024, scale))[0] for i in range(10)]
    assert min(gains) > 3


@pytest.mark.parametrize("seed", range(4))
def test_channels_that_few_samples_show_keep_room(seed):
    """As behind pooled ReLU6: few channels are on in a sample, up to 6, and others in the next."""
    rng = np.random.default_rng(seed)
    drawn = [rng.exponential(1, (n, 400)) ** 3 * (rng.random((n, 400)) < 0.05) for n in (64, 4000)]
    seen, other = (np.minimum(x, 6) for x in drawn)
    weight = (rng.standard_normal((400, 16)) / 20).astype(np.float32)
    share = np.ones(64)
    m = Moments(share @ seen**2, 64, share @ seen, seen, seen, seen, share)
    s, gain = factors([Weighted(m, weight)], static=True, rounding=1.0, count=64)
    by = s if gain >= Smooth.gain else np.ones(400)
    high = (seen / by).max()
    x = np.rint((other / by).clip(0, high) / (high / 255)) * (high / 255) * by
    assert np.square((x - other) @ weight).sum() < 1e-3 * np.square(other @ weight).sum()
