"""Ranges of a weight's blocks: the ends at which plain rounding has the least error."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from jq.formats import Encoding
from jq.formats.affine import Affine
from jq.formats.arrays import NUMPY
from jq.formats.blocks import per_block, reduce_blocks
from jq.passes.recovery._units import far_exponents, near_one

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6)  # of a block's range, at either end
Candidate = tuple[np.ndarray, np.ndarray | None, np.ndarray]


def search_ranges(
    fmt: Affine,
    weight: np.ndarray,
    importance: np.ndarray,
    enc: Encoding,
    shares: Sequence[float] = SHARES,
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point of integers of least squared error, see `least`.

    Args:
        shares: of a block's range that are tried, at both ends; asymmetric: in every combination.
            The first wins a tie.
    """
    lo = reduce_blocks(NUMPY, NUMPY.reduce_min, weight, enc)
    hi = reduce_blocks(NUMPY, NUMPY.reduce_max, weight, enc)

    def candidates() -> Iterator[Candidate]:
        alike = enc.scheme == "symmetric"
        for a, b in (
            zip(shares, shares, strict=True) if alike else itertools.product(shares, shares)
        ):
            scale, zero = fmt.parameters(lo * np.float32(a), hi * np.float32(b), enc)
            scale = scale.astype(np.float32)
            codes = fmt.quantize(weight, scale, zero, enc)
            yield scale, zero, np.asarray(fmt.dequantize(NUMPY, codes, scale, zero, enc))

    return least(candidates(), weight, importance, enc)


def least(
    candidates: Iterable[Candidate], weight: np.ndarray, importance: np.ndarray, enc: Encoding
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point (f32, of the grid) of least squared error, elements weighted.

    Args:
        candidates: scale, zero point (None: 0) and what the weight becomes with them.
        importance: of the elements; any shape that broadcasts to the weight's.
    """
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
        error = _sum_blocks(importance * np.square(difference), enc)
        better = error < best
        best = np.where(better, error, best)
        scales = np.where(better, scale, scales)
        if zero is not None:
            zeros = np.where(better, zero.astype(np.float32), zeros)
    return scales, zeros


def _sum_blocks(x: np.ndarray, enc: Encoding) -> np.ndarray:
    def total(a: np.ndarray, axes: Sequence[int]) -> np.ndarray:
        return np.asarray(a.sum(axis=tuple(axes), keepdims=True))

    return np.asarray(reduce_blocks(NUMPY, total, x, enc))
