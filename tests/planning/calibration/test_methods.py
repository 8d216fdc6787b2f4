"""The choice of each method, against small cases solved by hand and brute force."""

import numpy as np
import pytest

from jq.base.errors import UserError
from jq.formats import NUMPY, Encoding, get_format
from jq.planning.calibration.histogram import NUMPY_STATS, Histogram
from jq.planning.calibration.methods import quantization_error
from jq.planning.calibration.observer import get_observer

pytestmark = pytest.mark.usefixtures("quick_xla")

METHODS = ["minmax", "average", "percentile", "entropy", "mse", "octav"]
RNG = np.random.default_rng(1)


def stats(method, *batches):
    observer = get_observer(method)
    total = observer.neutral()
    for x in batches:
        total = observer.combine(
            NUMPY_STATS, total, observer.measure(NUMPY_STATS, np.asarray(x, np.float32))
        )
    return total


def range_of(method, *batches, bits=8, scheme="asymmetric"):
    r = get_observer(method).range_of(stats(method, *batches), bits, scheme)
    return r.low, r.high


def mse(x, low, high, bits, scheme):
    fmt, enc = get_format(f"int{bits}"), Encoding(f"int{bits}", x.shape, (0,), scheme)
    scale, zero = fmt.parameters(np.array([low]), np.array([high]), enc)
    codes = fmt.quantize(x, scale, zero, enc)
    return float(((fmt.dequantize(NUMPY, codes, scale, zero, enc) - x) ** 2).mean())


def test_average_by_hand():
    assert range_of("average", [-1, 4], [-3, 2], [0, 0]) == pytest.approx((-4 / 3, 2))
    assert get_observer("average").extremes(stats("average", [-1, 4], [-3, 2])) == (-3, 4)


def test_percentile_cuts_one_in_a_hundred_thousand():
    x = np.linspace(0, 1, 1_000_000, dtype=np.float32)
    x[-3:] = 50  # three of a million: fewer than the five that an end may lose
    width = Histogram.of_data(x).width
    assert range_of("percentile", x)[1] == pytest.approx(1, abs=width)
    assert range_of("percentile", -x, scheme="symmetric")[0] == pytest.approx(-1, abs=width)
    x[-30:] = 50
    assert range_of("percentile", x) == (0, 50)
    assert range_of("percentile", -x, scheme="symmetric") == (-50, 0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("name", ["normal", "laplace", "gelu", "outlier", "positive"])
def test_mse_and_octav_are_near_the_best_range(bits, scheme, name):
    n = RNG.standard_normal(20_000)
    x = {
        "normal": n,
        "laplace": RNG.laplace(size=20_000),
        "gelu": n * 3 / (1 + np.exp(-1.7 * n * 3)),
        "outlier": np.concatenate([n, [60.0]]),
        "positive": np.abs(n),
    }[name].astype(np.float32)
    shares = np.linspace(0.02, 1, 50)
    lows = x.min() * shares if x.min() < 0 else [0.0]
    best = min(mse(x, lo, hi, bits, scheme) for lo in lows[::3] for hi in x.max() * shares[::3])
    for method, slack in (("mse", 1.06), ("octav", 1.3)):
        chosen = mse(x, *range_of(method, x, bits=bits, scheme=scheme), bits, scheme)
        assert chosen <= slack * best, method
        assert chosen <= mse(x, x.min(), x.max(), bits, scheme) * 1.01, method


def test_octav_stands_where_the_derivative_is_zero():
    """A Laplace distribution of scale 1: at 4 bits the known optimum is about 5.03."""
    x = RNG.laplace(size=400_000).astype(np.float32)
    low, high = range_of("octav", x, bits=4, scheme="symmetric")
    assert -low == high == pytest.approx(5.03, abs=0.1)


def test_mse_does_not_clip_without_a_gain():
    x = np.array([-1.0, 1.0], np.float32)
    assert range_of("mse", x) == (-1, 1)


def test_quantization_error_agrees_with_the_format():
    x = np.round(RNG.standard_normal(4000), 2).astype(np.float32)
    h = Histogram.of_data(x)
    for low, high, symmetric in ((-2, 3, False), (-2.5, 2.5, True), (0, 1, False)):
        scheme = "symmetric" if symmetric else "asymmetric"
        expected = mse(x, low, high, 8, scheme)
        # the middle of a bin stands for its values
        assert quantization_error(h, low, high, 8, symmetric) == pytest.approx(
            expected, rel=0.1, abs=h.width**2
        )


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_has_its_own_range(method):
    assert range_of(method, np.full(10, 3.0)) == (3, 3)


@pytest.mark.parametrize("method", METHODS)
def test_batches_and_order_do_not_matter(method):
    parts = [RNG.standard_normal(100) * s for s in (1, 5, 0.1)]
    forward, backward = stats(method, *parts), stats(method, *parts[::-1])
    for a, b in zip(forward, backward, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_unknown_method():
    with pytest.raises(UserError, match="unknown calibration method 'kl'.*known: average, entropy"):
        get_observer("kl")
