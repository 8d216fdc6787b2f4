"""Thresholds against the calibrators that define percentile and entropy for many users."""

import numpy as np
import pytest

from jq.planning.calibration.histogram import Histogram
from jq.planning.calibration.methods import Percentile, _divergence, _magnitudes
from jq.planning.calibration.observer import get_observer

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


DIFFERENCES = frozenset({"window", "levels", "ends", "whole", "smooth"})


def divergence(counts, size, levels, theirs):
    """Divergence of |x| in `counts`, mirrored, cut at `size`. In ONNX Runtime, all `DIFFERENCES`:

    window: one bin more on the positive side;
    levels: each has size // levels bins; the last one counts those that are left over, and leaves
        them empty (ours: the bins are shared out, all belong to a level, both signs alike);
    ends: what lies beyond is part of the ends before it is asked which bins hold anything;
    whole: the candidate is rounded down to whole numbers;
    smooth: an empty bin counts as 1e-4 values (ours: 1e-4 / size of the distribution, and only
        where the reference holds something).
    """
    both = np.concatenate([counts[::-1], counts])
    zero = len(counts)
    start, end = zero - size, zero + size
    if "window" in theirs:
        end = min(end + 1, len(both))
    inside = both[start:end]
    p = inside.astype(np.float64)
    p[0] += both[:start].sum()
    p[-1] += both[end:].sum()
    held = (p if "ends" in theirs else inside) > 0
    if "levels" in theirs:
        merged = len(inside) // (2 * levels)
        level = np.minimum(np.arange(len(inside)) // merged, 2 * levels - 1)
        spread = np.arange(len(inside)) < merged * 2 * levels
    else:
        up = np.arange(size) * levels // size
        level = np.concatenate([levels - 1 - up[::-1], levels + up, [2 * levels - 1]])[
            : len(inside)
        ]
        spread = np.ones(len(inside), bool)
    total = np.bincount(level, inside, 2 * levels)
    filled = np.bincount(level, held & spread, 2 * levels)
    q = np.where(
        spread & (held | ("levels" in theirs)), total[level] / np.maximum(filled[level], 1), 0
    )
    if "levels" in theirs:
        q = np.where(filled[level] > 0, q, 0)
    if "whole" in theirs:
        q = np.floor(q)
    if "smooth" in theirs:
        p, q = (_smooth(v) for v in (p, q))
        p, q = p / p.sum(), q / q.sum()
        return (p * np.log(p / q)).sum()
    p, q = p / p.sum(), q / q.sum()
    used = p > 0
    return (p[used] * np.log(p[used] / np.maximum(q[used], 1e-4 / len(p)))).sum()


def _smooth(x, eps=1e-4):
    zero = x == 0
    return np.where(zero, eps, x - eps * zero.sum() / max((~zero).sum(), 1)).astype(np.float32)


def threshold(counts, levels, theirs):
    sizes = range(levels, len(counts) + 1)
    return int(np.argmin([divergence(counts, n, levels, theirs) for n in sizes])) + levels


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("levels", [16, 32])
def test_entropy_on_the_same_histogram(name, levels):
    """Bin for bin: theirs is ours with five differences, all of them named; without them it is
    TensorRT's definition, which ours is to the bin when every size is a candidate."""
    from onnxruntime.quantization.calibrate import HistogramCollector

    x = np.abs(DATA[name])
    counts = np.histogram(x, 220, (0, x.max()))[0]
    edges = np.linspace(-220, 220, 441).astype(np.float32)
    collector = HistogramCollector("entropy", True, 128, 2 * levels, 99.9, "same")
    both = np.concatenate([counts[::-1], counts])
    given = (both, edges, np.float32(-220), np.float32(220))
    low, _ = collector.get_entropy_threshold(given, 2 * levels)
    assert threshold(counts, levels, DIFFERENCES) == -low
    sizes = range(levels, len(counts) + 1)
    ours = int(np.argmin([_divergence(counts, n, levels) for n in sizes])) + levels
    assert threshold(counts, levels, frozenset()) == ours


def test_few_candidates_lose_little():
    """128 sizes are tried, not all: the divergence is within a tenth of the least, or tiny."""
    for x in DATA.values():
        h = Histogram.of_data(x.astype(np.float32))
        counts = _magnitudes(h)
        ours = round(get_observer("entropy").choose(h, 8, True)[1] / h.width)
        every = [_divergence(counts, n, 128) for n in range(128, len(counts) + 1)]
        assert _divergence(counts, ours, 128) <= 1.1 * min(every) + 1e-4
