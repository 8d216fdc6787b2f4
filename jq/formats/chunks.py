"""NumPy only: quantizing large arrays in pieces that stay in the processor's cache."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from jq.formats import checks
from jq.formats.arrays import NUMPY
from jq.formats.base import Encoding, Parts
from jq.formats.blocks import expand, reduce_blocks, sizes

F32 = np.float32
CHUNK = 1 << 15  # values; a few float32 temporaries of this size fit a second-level cache

Index = tuple[slice, ...]
Piece = tuple[Index, Index, Encoding]
Binary = Callable[[np.ndarray, np.ndarray], np.ndarray]


def chunks(enc: Encoding) -> Iterator[Piece]:
    """Slices of the tensor and of its grid that cover both, and each piece's encoding.

    Pieces are cut along leading axes at whole blocks, never along the last axis.
    """
    axis = next((i for i, n in enumerate(enc.shape[:-1]) if n > 1), None)
    size = math.prod(enc.shape)
    if axis is None or size <= CHUNK:
        yield (), (), enc
        return
    n, block = enc.shape[axis], enc.block[axis]
    unit = max(block, 1)
    step = max(1, CHUNK * n // size // unit) * unit
    for start in range(0, n, step):
        stop = min(start + step, n)
        whole = (slice(None),) * axis
        rows = (*whole, slice(start, stop))
        grid = rows if block == 1 else (*whole, slice(start // unit, -(-stop // unit)))
        grid = (*whole, slice(None)) if block == 0 else grid
        shape = (*enc.shape[:axis], stop - start, *enc.shape[axis + 1 :])
        yield from _inner(rows, grid, replace(enc, shape=shape), axis)


def _inner(
    rows: Index, grid: Index, enc: Encoding, axis: int
) -> Iterator[tuple[Index, Index, Encoding]]:
    """Cuts a piece further when one step along `axis` is still large."""
    if enc.shape[axis] > 1 or math.prod(enc.shape) <= CHUNK:
        yield rows, grid, enc
        return
    for inner_rows, inner_grid, inner in chunks(enc):
        yield rows + inner_rows[axis + 1 :], grid + inner_grid[axis + 1 :], inner


def block_range(x: np.ndarray, enc: Encoding) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest of each block and 0, f32 of `enc.grid`; NaN and infinity are refused."""
    lo, hi = np.zeros(enc.grid, F32), np.zeros(enc.grid, F32)
    for rows, grid, piece in chunks(enc):
        values = checks.as_float32(x[rows])
        lo[grid] = np.minimum(lo[grid], reduce_blocks(NUMPY, NUMPY.reduce_min, values, piece))
        hi[grid] = np.maximum(hi[grid], reduce_blocks(NUMPY, NUMPY.reduce_max, values, piece))
    checks.check_finite(lo, enc)
    checks.check_finite(hi, enc)
    return lo, hi


def block_absmax(x: np.ndarray, enc: Encoding) -> np.ndarray:
    """Largest magnitude of every block, float32 of `enc.grid`; NaN and infinity are refused."""
    out = np.zeros(enc.grid, F32)
    for rows, grid, piece in chunks(enc):
        values = np.abs(checks.as_float32(x[rows]))
        out[grid] = np.maximum(out[grid], reduce_blocks(NUMPY, NUMPY.reduce_max, values, piece))
    checks.check_finite(out, enc)
    return out


def per_block(f: Binary, x: np.ndarray, grid: np.ndarray, enc: Encoding) -> np.ndarray:
    """`f(x, grid repeated over its blocks)`, without the repetition where blocks fit."""
    cut: list[int] = []
    cut_grid: list[int] = []
    for n, g, b in zip(enc.shape, enc.grid, sizes(enc), strict=True):
        if g == 1 or b == 1:
            cut, cut_grid = [*cut, n], [*cut_grid, g]
        elif n == g * b:
            cut, cut_grid = [*cut, g, b], [*cut_grid, g, 1]
        else:
            return f(x, expand(NUMPY, grid, enc))
    return f(x.reshape(cut), grid.reshape(cut_grid)).reshape(enc.shape)


def decode_pieces(
    decode: Callable[[Parts, Encoding], np.ndarray], parts: Parts, enc: Encoding
) -> np.ndarray:
    """`decode(parts, enc)` piece by piece: a slice of the tensor is the same slice of its parts.

    Parts have the tensor's rank. `codes` is cut as the tensor, the others as the grid, but for
    axes of size 1.
    """
    out = np.empty(enc.shape, np.float32)
    for rows, grid, piece in chunks(enc):
        sliced = {
            name: part[rows if name == "codes" else _clipped(grid, part)]
            for name, part in parts.items()
        }
        out[rows] = decode(sliced, piece)
    return out


def _clipped(index: Index, part: np.ndarray) -> Index:
    return tuple(slice(None) if n == 1 else s for s, n in zip(index, part.shape, strict=False))
