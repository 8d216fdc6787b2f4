"""Thresholds against the calibrators that define percentile and entropy for many users."""

import numpy as np
import pytest

from jq.calibrate.entropy import _divergence, _magnitudes
from jq.calibrate.histogram import Histogram
from jq.calibrate.observer import get_observer
from jq.calibrate.percentile import Percentile

pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(3)
DATA = {
    "normal": RNG.standard_normal(100_000),
    "heavy": RNG.standard_t(3, size=100_000),
    "skewed": RNG.standard_normal(100_000) ** 3 + 1,
}


def theirs(method, x, symmetric, **options):
    from onnxruntime.quantization.calibrate import HistogramCollector

    collector = HistogramCollector(
        method=method,
        symmetric=symmetric,
        num_bins=2048,
        num_quantized_bins=128,
        percentile=options.get("percentile", 99.999),
        scenario="same",
    )
    collector.collect({"x": [x.astype(np.float32)]})
    low, high, *_ = collector.compute_collection_result()["x"]
    return float(np.squeeze(low)), float(np.squeeze(high))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("share", [0.99, 0.9999])
def test_percentile(name, symmetric, share):
    """The same values are cut off, but for those of a bin of theirs or of ours.

    They round the other way at the lower end, where a bin of the tail holds a value or two.
    """
    x = DATA[name].astype(np.float32)
    method = Percentile()
    method.share = share
    h = Histogram.of_data(x)
    low, high = method.choose(h, 8, symmetric)
    their_low, their_high = theirs("percentile", x, symmetric, percentile=share * 100)
    width = h.width + 2 * float(np.abs(x).max()) / 2048
    for ours, other in ((low, their_low), (high, their_high)):
        between = (x > min(ours, other)) & (x < max(ours, other))
        assert abs(ours - other) <= 2 * width or between.sum() <= 2


@pytest.mark.parametrize("name", DATA)
def test_entropy(name):
    """They pour both signs into 128 levels, half of what int8 has: as ours for 7 bits.

    Their bins are others, and so are the candidates.
    """
    x = DATA[name].astype(np.float32)
    ours = get_observer("entropy").choose(Histogram.of_data(x), 7, True)[1]
    low, high = theirs("entropy", x, True)
    counts = _magnitudes(Histogram.of_data(x))
    width = Histogram.of_data(x).width
    lost = [_divergence(counts, max(64, int(t / width)), 64) for t in (ours, max(-low, high))]
    assert lost[0] <= lost[1]
    assert ours == pytest.approx(max(-low, high), rel=0.35)
