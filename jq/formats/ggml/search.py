"""Scale searches of the k-quants: least squares over a range of candidate scales.

Rounding to a trial scale gives codes; for fixed codes the best scale (and minimum) has a
closed form; the trial with the least squared error wins. These are the searches of ggml's
`make_qkx2_quants` and `make_qx_quants` with equal weights, so that they minimize the RMSE; or with
weights for the values [run, n], so that they minimize the weighted one.
Sub-blocks lie along axis 0, [run, n]: sums over it run along contiguous rows.
"""

import numpy as np

from jq.formats.ggml import reciprocal


def fit_affine(
    x: np.ndarray, top: int, trials: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """x ~ scale * code + minimum, codes 0..top, minimum <= 0.

    x: f32 [run, n]; each trial t rounds to the scale range / (top + t). Returns two f32 [n].
    """
    low = np.minimum(x.min(axis=0), 0)
    span = x.max(axis=0) - low
    y, count = x - low, np.float32(len(x)) if weights is None else weights.sum(axis=0)
    wy = y if weights is None else y * weights
    sum_y = wy.sum(axis=0)
    scale, shift, best = np.zeros_like(low), np.zeros_like(low), np.zeros_like(low)
    for t in trials:
        codes = y * (np.float32(top + t) * reciprocal(span))
        np.minimum(np.rint(codes, out=codes), top, out=codes)
        sum_cy, least = (codes * wy).sum(axis=0), np.float32(0)
        if weights is None:
            sum_c = codes.sum(axis=0)
            sum_cc = np.square(codes, out=codes).sum(axis=0)
        else:
            sum_c, sum_cc = (codes * weights).sum(axis=0), (codes * codes * weights).sum(axis=0)
            least = np.float32(1e-6) * count * sum_cc  # no sum of integers: it is rounded
        # Normal equations of y ~ s * codes + b. Where b + low > 0 the bound itself is best, and
        # where all codes are equal (the determinant, a sum of integers, is exactly 0) it will do.
        determinant = count * sum_cc - sum_c * sum_c
        inverse = reciprocal(determinant)
        s = (count * sum_cy - sum_y * sum_c) * inverse
        b = (sum_cc * sum_y - sum_c * sum_cy) * inverse
        bound = (b > -low) | (determinant <= least)
        b = np.where(bound, -low, b)
        s = np.where(bound, (sum_cy + low * sum_c) * reciprocal(sum_cc), s)
        gain = s * (2 * sum_cy - s * sum_cc) + b * (2 * sum_y - 2 * s * sum_c - b * count)
        better = gain > best
        scale, shift, best = (
            np.where(better, new, old) for new, old in ((s, scale), (b, shift), (gain, best))
        )
    return scale, low + shift


def fit_symmetric(
    x: np.ndarray, half: int, trials: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """x ~ scale * code, codes -half..half-1, the value of largest magnitude near -half.

    x: f32 [run, n]; each trial t rounds to the scale largest / -(half + t). Returns f32 [n].
    """
    high, low = x.max(axis=0), x.min(axis=0)
    largest = np.where(high > -low, high, low)
    scale, best = np.zeros_like(high), np.zeros_like(high)
    for t in trials:
        codes = x * (np.float32(-(half + t)) * reciprocal(largest))
        np.clip(np.rint(codes, out=codes), -half, half - 1, out=codes)
        if weights is None:
            sum_cx = (codes * x).sum(axis=0)
            s = sum_cx * reciprocal(np.square(codes, out=codes).sum(axis=0))
        else:
            weighted = codes * weights
            sum_cx = (weighted * x).sum(axis=0)
            s = sum_cx * reciprocal((weighted * codes).sum(axis=0))
        better = s * sum_cx > best
        scale, best = np.where(better, s, scale), np.where(better, s * sum_cx, best)
    return scale
