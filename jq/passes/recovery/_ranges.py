"""Ranges of a weight's blocks: the ends at which plain rounding has the least error.

Powers of two are taken out of numbers whose squares float32 does not hold. They are exact, and what
recovery looks for (codes, ratios of errors) does not depend on them."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from jq.formats import Affine, Encoding
from jq.formats.arrays import NUMPY, nearest_codes
from jq.formats.blocks import per_block, reduce_blocks
from jq.formats.imported import WithMinimum

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6)  # of a block's range, at either end
FAR = 40  # exponents: squares of sums of thousands of such numbers stay in float32
Candidate = tuple[np.ndarray, np.ndarray, np.ndarray]


def far_exponents(largest: np.ndarray) -> np.ndarray:
    """Exponents, int32, of those magnitudes that are far from 1; 0 for all others."""
    exponent = np.frexp(largest)[1]
    return np.where(np.abs(exponent) > FAR, exponent, 0)


def near_one(x: np.ndarray) -> np.ndarray:
    """`x` (floats of any shape), its largest magnitude taken next to 1."""
    return np.ldexp(x, -np.frexp(np.abs(x).max(initial=0.0))[1])


def search_ranges(
    fmt: Affine | WithMinimum, weight: np.ndarray, importance: np.ndarray, enc: Encoding
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point of integers of least squared error, see `least`: of shares of a block's
    range, with zeros in every combination of both ends, the first that is best."""
    lo = reduce_blocks(NUMPY, NUMPY.reduce_min, weight, enc)
    hi = reduce_blocks(NUMPY, NUMPY.reduce_max, weight, enc)
    alike = isinstance(fmt, Affine) and enc.scheme == "symmetric"
    pairs = zip(SHARES, SHARES, strict=True) if alike else itertools.product(SHARES, SHARES)

    def candidates() -> Iterator[Candidate]:
        for a, b in pairs:
            least, most = np.minimum(lo, 0) * np.float32(a), np.maximum(hi, 0) * np.float32(b)
            scale, zero = fmt.parameters(least, most, enc)
            scale = scale.astype(np.float32)
            shift = np.zeros_like(scale) if zero is None else zero.astype(np.float32)
            steps = per_block(np.add, per_block(np.divide, weight, scale, enc), shift, enc)
            steps = per_block(np.subtract, nearest_codes(steps, *fmt.limits(enc)), shift, enc)
            yield scale, shift, per_block(np.multiply, steps, scale, enc)

    return least(candidates(), weight, importance, enc)


def least(
    candidates: Iterable[Candidate], weight: np.ndarray, importance: np.ndarray, enc: Encoding
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point (f32, of the grid) of least squared error, elements weighted by their
    importance. A candidate is a scale, a zero and what the weight becomes with them."""
    importance = near_one(importance).astype(np.float32)
    largest = reduce_blocks(NUMPY, NUMPY.reduce_max, np.abs(weight), enc)
    far = np.clip(-far_exponents(largest), -126, 126)
    unit = np.ldexp(np.float32(1), far)
    best = np.full(enc.grid, np.inf, np.float32)
    scales, zeros = np.ones(enc.grid, np.float32), np.zeros(enc.grid, np.float32)
    for scale, zero, real in candidates:
        difference = real - weight
        if far.any():
            difference = per_block(np.multiply, difference, unit, enc)
        squares = importance * np.square(difference)
        error = np.asarray(reduce_blocks(NUMPY, NUMPY.reduce_sum, squares, enc))
        better = error < best
        best = np.where(better, error, best)
        scales = np.where(better, scale, scales)
        zeros = np.where(better, zero, zeros)
    return scales, zeros
