"""Blocks of elements that share their parameters, and one number for each."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


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
