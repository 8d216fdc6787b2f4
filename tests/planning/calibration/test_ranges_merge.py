"""Ranges of two runs merge into those of one, through JSON as well."""

from dataclasses import replace

import numpy as np
import pytest

from jq.base.errors import UserError
from jq.frontends.model import Model
from jq.frontends.tracing.entry import trace
from jq.planning.calibration.ranges import Ranges
from jq.planning.calibration.run import calibrate
from jq.planning.calibration.shards import NO_SHARDS, Shards

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


@pytest.mark.parametrize("method", ["minmax", "average", "mse"])
def test_shards_in_any_order_equal_one_pass(program, method):
    whole = calibrate(program, DATA, method)
    parts = []
    for text in ("3/3", "1/3", "2/3"):
        shards = Shards.parse(text)
        first, data = shards.part(DATA)
        found = calibrate(program, data, method, first=first)
        parts.append(Ranges.of_text(replace(found, shards=shards).text()))
    assert [p.samples for p in parts] == [2, 1, 1] and parts[0].shards.missing == [1, 2]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    assert not merged.shards.count and merged.samples == whole.samples
    if method != "average":
        assert merged.text() == whole.text()
        return
    for name, stats in whole.statistics.items():  # sums of a few samples, in another order
        bound = len(DATA) * 2.0**-53 * max(abs(float(s)) for s in stats[:3])
        assert all(
            abs(float(a) - float(b)) <= 4 * bound
            for a, b in zip(stats, merged.statistics[name], strict=True)
        )


def test_shards_that_are_no_parts_of_one_whole(program):
    assert Shards.parse("1/1") == NO_SHARDS
    for wrong in ("0/2", "3/2", "1", "a/b", "1/0", "-1/2"):
        with pytest.raises(UserError):
            Shards.parse(wrong)
    with pytest.raises(UserError, match="no sample"):
        Shards.parse("1/9").part(DATA)
    first, other = (Ranges(shards=Shards.parse(text)) for text in ("1/2", "1/3"))
    for wrong, reason in ((first, "1/2 is there twice"), (other, "one whole"), (Ranges(), "whole")):
        with pytest.raises(UserError, match=reason):
            first.merge(wrong)
    for text in ('{"count": 2, "seen": [3]}', '{"count": 2}', "[1]", '{"count": 1e9, "seen": [1]}'):
        broken = Ranges(samples=1).text().replace('"samples"', f'"shards": {text}, "samples"')
        with pytest.raises(UserError):
            Ranges.of_text(broken)
