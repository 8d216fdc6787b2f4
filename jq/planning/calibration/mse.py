"""The range of least mean squared error: a search over both ends.

Every bin of the histogram is quantized as its middle would be; inside a bin, values are even,
which adds the same to every range. Asymmetric: one end at a time, until neither moves.
"""

import numpy as np

from jq.planning.calibration.histogram import Histogram
from jq.planning.calibration.observer import HistogramObserver

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
        In squared units of the data; each value counts as the centre of its bin.
    """
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
