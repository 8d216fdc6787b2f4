"""OCTAV: the clipping of least mean squared error, found by Newton's method.

Sakr et al., "Optimal Clipping and Magnitude-aware Differentiation for Improved Quantization-
aware Training" (ICML 2022), equation 9: with rounding noise s^2 4^-B / 3 inside the range,

    s' = E[|x| ; |x| > s] / (4^-B / 3 * P(0 < |x| <= s) + P(|x| > s)).

Asymmetric, the same derivation with two ends, each updated given the other. With
n = 2^B - 1 steps the noise is (high - low)^2 / (12 n^2) and its derivative by `high` gives

    high' = (E[x ; x > high] + low * c) / (P(x > high) + c),   c = P(inside) / (12 n^2).
"""

import numpy as np

from jq.planning.calibration.histogram import Histogram
from jq.planning.calibration.observer import HistogramObserver

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
        inside = share @ ((size > 0) & ~above)
        weight = 4.0**-bits / 3 * inside + share @ above
        end = float((share * above) @ size / weight) if weight else end
    return end
