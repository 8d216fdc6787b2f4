"""Ranges of two runs merge into those of one, through JSON as well."""

import numpy as np
import pytest

from jq.calibration.ranges import Ranges
from jq.calibration.run import calibrate
from jq.errors import UserError
from jq.model import Model
from jq.tracing.entry import trace

pytestmark = pytest.mark.usefixtures("quick_xla")

RNG = np.random.default_rng(2)
DATA = [[(RNG.standard_normal((4, 8)) * s).astype(np.float32)] for s in (1, 7, 0.3, 2)]


@pytest.fixture(scope="module")
def program():
    import jax

    def f(params, x):
        def body(c, w):
            return jax.nn.gelu(c @ w), None

        return jax.lax.scan(body, x, params["w"])[0] @ params["last"]

    params = {
        "w": RNG.standard_normal((3, 8, 8)).astype(np.float32),
        "last": RNG.standard_normal((8, 2)).astype(np.float32),
    }
    return trace(Model(f, params, (DATA[0][0],)))


@pytest.mark.parametrize("method", ["minmax", "average", "percentile", "entropy", "mse", "octav"])
def test_two_runs_equal_one(program, method, tmp_path):
    whole = calibrate(program, DATA, method)
    first, second = calibrate(program, DATA[:1], method), calibrate(program, DATA[1:], method)
    second.save(tmp_path / "r.json")
    both = first.merge(Ranges.load(tmp_path / "r.json"))
    assert both.samples == 4 and both.sites == whole.sites
    for name in whole.sites:
        a, b = whole.get(name, 8, "asymmetric"), both.get(name, 8, "asymmetric")
        assert (a.low, a.high) == pytest.approx((b.low, b.high), rel=1e-6)


def test_order_does_not_matter(program):
    forward, backward = calibrate(program, DATA, "mse"), calibrate(program, DATA[::-1], "mse")
    for name, stats in forward.statistics.items():
        np.testing.assert_array_equal(stats[0], backward.statistics[name][0])


def test_loop_iterations_are_counted(program):
    ranges = calibrate(program, DATA, "mse")
    inputs = [s[0][3:].sum() for name, s in ranges.statistics.items() if name.endswith(":0")]
    assert sorted(inputs) == [4 * 4 * 8, 3 * 4 * 4 * 8]


def test_methods_that_differ_do_not_merge(program):
    with pytest.raises(UserError, match="ranges of mse and of minmax cannot be merged"):
        calibrate(program, DATA[:1], "mse").merge(calibrate(program, DATA[:1]))


@pytest.mark.parametrize("method", ["average", "mse"])
def test_nan_is_named_with_layer_and_sample(program, method):
    bad = [DATA[0], [np.full((4, 8), np.nan, np.float32)]]
    with pytest.raises(UserError, match="NaN or infinity in sample 1 .*dot_general|w"):
        calibrate(program, bad, method)
