"""Blocks of elements that share their parameters, and one number for each."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding, get_format
from jq.formats.blocks import expand
from jq.formats.imported.minimum import WithMinimum
from jq.ir.types import number_kind


def in_blocks(
    shape: tuple[int, ...], arrays: Sequence[np.ndarray]
) -> tuple[tuple[int, ...], list[np.ndarray]]:
    """The blocks in which numbers for each element are the same, and one number for each block."""
    block = tuple(_run(shape, a, arrays) for a in range(len(shape)))
    return block, [_sampled(np.broadcast_to(x, shape), block) for x in arrays]


def scale_type(arrays: Sequence[np.ndarray], kinds: set[str]) -> str:
    """The narrow type that numbers came in, where all of them have it."""
    narrow = sorted(kinds & {"bfloat16", "float16"})
    kept = (k for k in narrow if all(_same(a, np.dtype(k)) for a in arrays))
    return next(kept, "float32")


def _run(shape: tuple[int, ...], axis: int, arrays: Sequence[np.ndarray]) -> int:
    """Number of indices of an axis that share their parameters; 0 for all."""
    starts = {0}
    for x in (np.broadcast_to(a, shape) for a in arrays):
        differ = np.moveaxis(x[_from(axis, 1)] != x[_to(axis, -1)], axis, 0)
        starts |= set((np.flatnonzero(differ.any(tuple(range(1, differ.ndim)))) + 1).tolist())
    return 0 if starts == {0} else math.gcd(*starts, shape[axis])


def _from(axis: int, start: int) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(start, None),)


def _to(axis: int, end: int) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(None, end),)


def _sampled(x: np.ndarray, block: tuple[int, ...]) -> np.ndarray:
    """One number for each block."""
    steps = tuple(slice(None, None, b) if b else slice(0, 1) for b in block)
    return np.ascontiguousarray(x[steps])


def _same(x: np.ndarray, dtype: np.dtype[Any]) -> bool:
    return np.array_equal(x.astype(dtype).astype(x.dtype), x)


BITS = (2, 4, 8)


def with_minimum(
    codes: np.ndarray, scale: np.ndarray, minimum: np.ndarray, kinds: set[str]
) -> tuple[Encoding, dict[str, np.ndarray]] | None:
    """`scale * codes + minimum` in the fewest bits; None where codes take more than 8, or are none.

    Negative codes are counted from the lowest of their type, whose number is then the minimum.
    """
    if number_kind(codes.dtype) != "i" or not codes.size:
        return None
    low, high = int(codes.min()), int(codes.max())
    for bits in BITS:
        first = 0 if low >= 0 else -(1 << (bits - 1))
        if first <= low and high < first + (1 << bits):
            break
    else:
        return None
    if first:
        minimum = (minimum + np.float64(first) * scale).astype(np.float32)
    block, (scale, minimum) = in_blocks(codes.shape, (scale, minimum))
    fmt = get_format(f"uint{bits}_min")
    assert isinstance(fmt, WithMinimum)
    enc = Encoding(fmt.name, codes.shape, block, scale_type=scale_type((scale, minimum), kinds))
    return enc, fmt.with_minimum(codes.astype(np.int64) - first, scale, minimum, enc)


def rounded_sizes(made: tuple[Encoding, dict[str, np.ndarray]]) -> np.ndarray:
    """The magnitudes that are rounded for each element: its product and its minimum together.

    Twice them, for the model and the format round a sum each: in float32 the latter rounds the
    minimum in steps, a sum and a product.
    """
    enc, parts = made
    fmt = get_format(enc.format)
    assert isinstance(fmt, WithMinimum)
    codes = np.asarray(fmt.codes(NUMPY, parts, enc), np.float64) - fmt.first
    scale, low = (
        np.abs(expand(NUMPY, parts[k].astype(np.float64), enc)) for k in ("scale", "minimum")
    )
    return np.asarray(2 * (codes * scale + low))
