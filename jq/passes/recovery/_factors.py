"""By how much the channels of an activation are divided, so that its products lose least."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.planning.moments.collect import Moments

STRENGTHS = np.arange(0, 1.01, 0.05)
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)  # of the channels that keep their size
QUIET = 4  # how much quieter than the median channel one may count, at least
TRUST = 8  # rows for each time more


@dataclass(frozen=True)
class Weighted:
    """The weight that multiplies x, f32[K, N], and the moments of x weighted for this product."""

    moments: Moments
    weight: np.ndarray


def factors(
    products: Sequence[Weighted], *, static: bool, rounding: float, count: int, bits: int = 8
) -> tuple[np.ndarray, float]:
    """Powers of two s[K] for one activation x, and how many times they make the error smaller.

    The error of the products is estimated from rows r of x with steps d_r of x_r / s (all equal
    when static), and steps d_o of column o of diag(s) W:

        mean_r d_r^2 / 12 * sum_c s_c^2 |W_c|^2
        + rounding * sum_o d_o^2 / 12 * sum_c E[x_c^2] / s_c^2

    Candidates: s = a^t / w^(1-t) for a strength t (SmoothQuant's), and s = max(1, a / limit), which
    only holds the largest channels back; a and w are the extents of activations and weights.

    Args:
        rounding: what is left of the weights' rounding error after this pass (GPTQ takes the
            larger part of it away).
        count: of the rows that were seen.
        bits: of the codes of the activation. With 16, weights are the larger part of the error.
    """
    low = np.min([p.moments.low for p in products], axis=0).astype(np.float64)
    high = np.max([p.moments.high for p in products], axis=0).astype(np.float64)
    sizes = [np.abs(p.weight).astype(np.float32) for p in products]
    largest = np.max([size.max(1) for size in sizes], axis=0).astype(np.float64)
    if not np.isfinite(low).all() or not largest.any():
        return np.ones(len(low), np.float32), 1.0  # no row counts, or no weight
    extent = np.maximum(np.abs(low), np.abs(high))
    # A channel that was quiet in few rows may not stay so.
    quiet = max(QUIET, count / TRUST)
    extent = np.maximum(extent, max(np.median(extent) / quiet, extent.max() / quiet**3, 1e-12))
    largest = np.maximum(largest, 1e-12 * largest.max())

    squares = [(p.weight.astype(np.float64) ** 2).sum(1) for p in products]

    steps_of_range = (1 << bits) - 1

    def error(s: np.ndarray) -> float:
        total, s32 = 0.0, s.astype(np.float32)
        for p, size, square in zip(products, sizes, squares, strict=True):
            if static:
                range_ = max(0.0, (high / s).max()) - min(0.0, (low / s).min())
                noise = range_**2 * p.moments.total
            else:
                rows = p.moments.rows * (1 / s32)
                extents = np.maximum(rows.max(1), 0) - np.minimum(rows.min(1), 0)
                noise = float(extents.astype(np.float64) ** 2 @ p.moments.share)
            steps = (size * s32[:, None]).max(0).astype(np.float64) / 127
            total += noise / steps_of_range**2 * (s**2 @ square)
            total += rounding * (steps**2).sum() * (p.moments.gram / s**2).sum()
        return float(total)

    candidates = [extent**t / largest ** (1 - t) for t in STRENGTHS]
    candidates += [np.maximum(1.0, extent / limit) for limit in np.quantile(extent, SHARES)]
    ones = np.ones_like(extent)
    rounded = [_power_of_two(s / np.exp(np.log(s).mean())) for s in candidates]
    best = min([ones, *rounded], key=error)
    return best.astype(np.float32), error(ones) / max(error(best), 1e-300)


def _power_of_two(s: np.ndarray) -> np.ndarray:
    return np.asarray(2.0 ** np.clip(np.rint(np.log2(s)), -20, 20))
