"""Methods that choose the range of an activation from what was observed of it."""

import numpy as np

from jq.formats.arrays import Array
from jq.planning.calibration.histogram import Histogram, StatOps
from jq.planning.calibration.observer import HistogramObserver, Observer, Parts, Range, Stats


class MinMax(Observer):
    """The smallest and the largest value ever seen."""

    name = "minmax"

    def neutral(self) -> Stats:
        return np.array(np.inf, np.float32), np.array(-np.inf, np.float32)

    def measure(self, ops: StatOps, x: Array) -> Parts:
        axes = range(len(ops.shape(x)))
        x = ops.convert(x, np.float32)
        low, high = ops.reduce_min(x, axes), ops.reduce_max(x, axes)
        return ops.reshape(low, ()), ops.reshape(high, ())

    def combine(self, ops: StatOps, a: Parts, b: Parts) -> Parts:
        return ops.minimum(a[0], b[0]), ops.maximum(a[1], b[1])

    def extremes(self, stats: Stats) -> tuple[float, float]:
        return float(stats[0]), float(stats[1])

    def range_of(self, stats: Stats, bits: int = 8, scheme: str = "asymmetric") -> Range:
        return Range(*self.extremes(stats))


# All but a small share of the values: 99.999 % of them, the rest cut off at both ends alike.
# Symmetric: the share of |x|. As ONNX Runtime's percentile calibrator.
class Percentile(HistogramObserver):
    name = "percentile"
    share = 0.99999

    def choose(self, h: Histogram, bits: int, symmetric: bool) -> tuple[float, float]:
        if symmetric:
            order = np.argsort(np.abs(h.centers), kind="stable")
            last = _first_above(h.counts[order], self.share)
            end = abs(h.centers[order][last]) + h.width / 2
            return -end, end
        cut = (1 - self.share) / 2
        high = h.centers[_first_above(h.counts, 1 - cut)] + h.width / 2
        low = h.centers[len(h.counts) - 1 - _first_above(h.counts[::-1], 1 - cut)] - h.width / 2
        return low, high


def _first_above(counts: np.ndarray, share: float) -> int:
    """The first bin at which the cumulative share reaches `share`."""
    total = np.cumsum(counts)
    return int(min(np.searchsorted(total, share * total[-1]), len(counts) - 1))


# The average over samples of each sample's smallest and largest value.
# ONNX Runtime calls it a moving average. It is the plain one here: exponential weights would
# make the range depend on the order of the samples.
class Average(MinMax):
    """Sums of the extremes and how many there were, and the extremes of all."""

    name = "average"

    def neutral(self) -> Stats:
        return *[np.zeros((), np.float32)] * 3, *super().neutral()

    def measure(self, ops: StatOps, x: Array) -> Parts:
        ends = super().measure(ops, x)
        return *ends, ops.constant(np.ones((), np.float32)), *ends

    def combine(self, ops: StatOps, a: Parts, b: Parts) -> Parts:
        sums = (ops.add(x, y) for x, y in zip(a[:3], b[:3], strict=True))
        return *sums, *super().combine(ops, a[3:], b[3:])

    def extremes(self, stats: Stats) -> tuple[float, float]:
        return super().extremes(stats[3:])

    def range_of(self, stats: Stats, bits: int = 8, scheme: str = "asymmetric") -> Range:
        low, high, count = (float(v) for v in stats[:3])
        return Range(low / count, high / count)


# OCTAV: the clipping of least mean squared error, found by Newton's method.
# Sakr et al., "Optimal Clipping and Magnitude-aware Differentiation for Improved Quantization-
# aware Training" (ICML 2022), equation 9: with rounding noise s^2 4^-B / 3 inside the range,
#     s' = E[|x| ; |x| > s] / (4^-B / 3 * P(0 < |x| <= s) + P(|x| > s)).
# Asymmetric, the same derivation with two ends, each updated given the other. With
# n = 2^B - 1 steps the noise is (high - low)^2 / (12 n^2) and its derivative by `high` gives
#     high' = (E[x ; x > high] + low * c) / (P(x > high) + c),   c = P(inside) / (12 n^2).
ITERATIONS = 30


class Octav(HistogramObserver):
    name = "octav"

    def choose(self, h: Histogram, bits: int, symmetric: bool) -> tuple[float, float]:
        share = h.counts / h.counts.sum()
        if symmetric:
            end = _symmetric(np.abs(h.centers), share, bits)
            return -end, end
        low = high = 0.0  # the mean beyond 0 is a first step of either end
        for _ in range(ITERATIONS):
            inside = ((h.centers >= low) & (h.centers <= high)) @ share
            noise = inside / (12 * (2**bits - 1) ** 2)
            above, below = h.centers > high, h.centers < low
            high, low = (
                _end(h.centers, share * above, low, noise, high),
                _end(h.centers, share * below, high, noise, low),
            )
        return float(low), float(high)


def _end(x: np.ndarray, beyond: np.ndarray, other: float, noise: float, old: float) -> float:
    weight = beyond.sum() + noise
    return float((beyond @ x + noise * other) / weight) if weight else old


def _symmetric(size: np.ndarray, share: np.ndarray, bits: int) -> float:
    end = float(size @ share)
    for _ in range(ITERATIONS):
        above = size > end
        weight = 4.0**-bits / 3 * (share @ ((size > 0) & ~above)) + share @ above
        end = float((share * above) @ size / weight) if weight else end
    return end


# The range of least mean squared error: a search over both ends.
# Every bin of the histogram is quantized as its middle would be; inside a bin, values are even,
# which adds the same to every range. Asymmetric: one end at a time, until neither moves.
STEPS = 64  # candidates per end, evenly from nothing to all of it
ROUNDS = 4


class Mse(HistogramObserver):
    name = "mse"

    def choose(self, h: Histogram, bits: int, symmetric: bool) -> tuple[float, float]:
        shares = np.arange(1, STEPS + 1) / STEPS
        if symmetric:
            ends = max(-h.low, h.high) * shares
            best = _best(ends, [quantization_error(h, -e, e, bits, True) for e in ends])
            return -best, best
        low, high = min(h.low, 0.0), max(h.high, 0.0)
        lows, highs = low * shares, high * shares
        for _ in range(ROUNDS):
            before = low, high
            high = _best(highs, [quantization_error(h, low, e, bits, False) for e in highs])
            low = _best(lows, [quantization_error(h, e, high, bits, False) for e in lows])
            if (low, high) == before:
                break
        return low, high


def _best(ends: np.ndarray, errors: list[float]) -> float:
    """The widest of the best: no clipping without a gain."""
    return float(ends[len(errors) - 1 - int(np.argmin(errors[::-1]))])


def quantization_error(h: Histogram, low: float, high: float, bits: int, symmetric: bool) -> float:
    """The mean squared error of quantizing the data of a histogram to a range.

    Args:
        low, high: ends of the range, in the units of the data; values beyond saturate.
        bits: of the codes, with the scale and zero point that `jq.formats.affine` gives the range.
        symmetric: the codes -(2^(bits-1) - 1) to 2^(bits-1) - 1 and no zero point.

    Returns:
        In squared units of the data; each value counts as the centre of its bin."""
    half = 1 << (bits - 1)
    steps = half - 1 if symmetric else 2 * half - 1
    extent = max(-low, high) if symmetric else high - low
    if extent <= 0:
        return float((h.counts * h.centers**2).sum() / h.counts.sum())
    scale = extent / steps
    zero = 0.0 if symmetric else float(np.rint(np.clip(-half - low / scale, -half, half - 1)))
    smallest = 1 - half if symmetric else -half
    codes = np.clip(np.rint(h.centers / scale) + zero, smallest, half - 1)
    error = (codes - zero) * scale - h.centers
    return float((h.counts * error**2).sum() / h.counts.sum())


# The range that loses least information (Kullback-Leibler), as TensorRT and ONNX Runtime.
# The reference distribution is |x| cut off at a threshold, what lies beyond added to its last
# bin; the candidate is the values inside, poured into 2^(bits-1) equal levels and spread evenly
# over the bins that hold anything. The threshold of the smallest divergence wins.
# (Szymon Migacz, "8-bit Inference with TensorRT", GTC 2017.)
# Asymmetric: that threshold cuts both ends.
CANDIDATES = 128
TINY = 1e-4  # stands for an empty bin of the candidate where the reference has something


class Entropy(HistogramObserver):
    name = "entropy"

    def choose(self, h: Histogram, bits: int, symmetric: bool) -> tuple[float, float]:
        counts = _magnitudes(h)
        levels = 1 << (bits - 1)
        if len(counts) <= levels:
            end = len(counts) * h.width
            return -end, end
        sizes = np.unique(np.linspace(levels, len(counts), CANDIDATES).astype(int))
        divergence = [_divergence(counts, int(n), levels) for n in sizes]
        end = float(sizes[int(np.argmin(divergence))] * h.width)
        return -end, end


def _magnitudes(h: Histogram) -> np.ndarray:
    """Counts of |x| in bins [0, width), [width, 2 width), ..."""
    return np.bincount(np.floor(np.abs(h.centers) / h.width).astype(int), weights=h.counts)


def _divergence(counts: np.ndarray, size: int, levels: int) -> float:
    inside = counts[:size]
    reference = inside.copy()
    reference[-1] += counts[size:].sum()
    level = np.arange(size) * levels // size
    total = np.bincount(level, weights=inside, minlength=levels)
    filled = np.bincount(level, weights=inside > 0, minlength=levels)
    mean = total / np.maximum(filled, 1)
    candidate = np.where(inside > 0, mean[level], 0.0)
    p, q = reference / reference.sum(), candidate / max(candidate.sum(), 1.0)
    used = p > 0
    return float((p[used] * np.log(p[used] / np.maximum(q[used], TINY / size))).sum())
