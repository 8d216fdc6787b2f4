"""The range that loses least information (Kullback-Leibler), as TensorRT and ONNX Runtime.

The reference distribution is |x| cut off at a threshold, what lies beyond added to its last
bin; the candidate is the values inside, poured into 2^(bits-1) equal levels and spread evenly
over the bins that hold anything. The threshold of the smallest divergence wins.
(Szymon Migacz, "8-bit Inference with TensorRT", GTC 2017.)

Asymmetric: that threshold cuts both ends.
"""

import numpy as np

from jq.planning.calibration.histogram import Histogram
from jq.planning.calibration.observer import HistogramObserver

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
    bins = np.floor(np.abs(h.centers) / h.width).astype(int)
    return np.bincount(bins, weights=h.counts)


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
