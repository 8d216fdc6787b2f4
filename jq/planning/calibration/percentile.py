"""All but a small share of the values: 99.999 % of them, the rest cut off at both ends alike.

Symmetric: the share of |x|. As ONNX Runtime's percentile calibrator.
"""

import numpy as np

from jq.planning.calibration.histogram import Histogram
from jq.planning.calibration.observer import HistogramObserver


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
