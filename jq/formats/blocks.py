"""Blocks along axes, written against `ArrayOps`: what every block format shares.

A tensor of `enc.shape` is cut into blocks of `enc.block`; `enc.grid` counts them per axis. The last
block of an axis may be short; zeros fill it where a full block is needed."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jq.formats import checks
from jq.formats.arrays import NUMPY, Array, ArrayOps
from jq.formats.base import Encoding, get_format


def full(ops: ArrayOps, value: float, shape: Sequence[int], dtype: Any) -> Array:
    """An array of this shape and type whose elements are all `value`."""
    return ops.broadcast(ops.constant(np.asarray(value, dtype)), shape, ())


def sizes(enc: Encoding) -> tuple[int, ...]:
    """The block size of each axis of `enc.shape`: 0, the whole axis, is its length here."""
    return tuple(b or n for n, b in zip(enc.shape, enc.block, strict=True))


def padded_shape(enc: Encoding) -> tuple[int, ...]:
    """`enc.shape` with every axis rounded up to whole blocks."""
    return tuple(g * b for g, b in zip(enc.grid, sizes(enc), strict=True))


def _cut_shape(enc: Encoding) -> list[int]:
    """Shape with a cut axis as two: [blocks, block]. Axes of one block, or of block 1, stay."""
    pairs = zip(enc.grid, sizes(enc), strict=True)
    return [n for g, b in pairs for n in ((g, b) if g > 1 and b > 1 else (g * b,))]


def expand(ops: ArrayOps, grid: Array, enc: Encoding) -> Array:
    """Repeats each entry of a grid over its block.

    Args:
        grid: an array of `enc.grid`, one entry for each block (scales, say).

    Returns:
        An array of `enc.shape`; a last block that is short takes only what it has."""
    cut, dims = _cut_shape(enc), []
    axis = 0
    for g, b in zip(enc.grid, sizes(enc), strict=True):
        dims.append(axis)
        axis += 2 if g > 1 and b > 1 else 1
    x = ops.broadcast(grid, cut, dims)
    if len(cut) != len(enc.shape):
        x = ops.reshape(x, padded_shape(enc))
    return crop(ops, x, enc.shape)


def crop(ops: ArrayOps, x: Array, shape: tuple[int, ...]) -> Array:
    """`x[:shape[0], :shape[1], ...]`: as many axes, none longer than that of `x`."""
    return x if ops.shape(x) == shape else ops.slice(x, [0] * len(shape), shape)


def pad_to(ops: ArrayOps, x: Array, shape: tuple[int, ...]) -> Array:
    """`x` of the larger `shape`: zeros of its type follow along every axis that is shorter."""
    have = ops.shape(x)
    if have == shape:
        return x
    zero = ops.constant(np.zeros((), ops.dtype(x)))
    return ops.pad(x, zero, [0] * len(shape), [n - m for n, m in zip(shape, have, strict=True)])


def reduce_blocks(ops: ArrayOps, reduce: Any, x: Array, enc: Encoding) -> Array:
    """`reduce` (`ops.reduce_max` or `ops.reduce_min`) of every block, of shape `enc.grid`.

    Short blocks are filled with zeros, so the result is that of the block and 0."""
    x = pad_to(ops, x, padded_shape(enc))
    cut, axes, axis = _cut_shape(enc), [], 0
    for g, b in zip(enc.grid, sizes(enc), strict=True):
        split = g > 1 and b > 1
        if b > 1:
            axes.append(axis + split)
        axis += 2 if split else 1
    if len(cut) != len(enc.shape):
        x = ops.reshape(x, cut)
    return ops.reshape(reduce(x, axes), enc.grid) if axes else x


# Cuts of stored tensors: cutting or joining the parts cuts or joins the tensor.
Axes = dict[str, int | None]  # by part; None where its shape has nothing to do with the axis


def cut_axes(enc: Encoding, axis: int, at: int) -> Axes | None:
    """The axis of each part that is cut where the tensor is cut along `axis` in front of `at`.

    None unless a block, and a byte of packed codes, ends there in every part."""
    # Of such pieces their parts must be as many times; more than codes that fill bytes together.
    many = 24 * max(enc.block[axis], 1)
    one, all_ = (_shapes(enc, axis, n) for n in (at, at * many))
    axes: Axes = {}
    for name, shape in one.items():
        grown = [a for a, n in enumerate(shape) if all_[name][a] != n]
        axes[name] = grown[0] if grown else None
        if any(all_[name][a] != many * shape[a] for a in grown):
            return None
    return axes


def cut_range(
    enc: Encoding, axis: int, low: int, high: int
) -> dict[str, tuple[int, int, int]] | None:
    """Axis, start and end in each part of the indices from `low` to `high` along `axis`.

    Parts that stay whole are left out. None where a part cannot be cut there."""
    ends = [n for n in (low, high) if 0 < n < enc.shape[axis]] or [enc.shape[axis]]
    found = [cut_axes(enc, axis, n) for n in ends]
    if any(axes is None for axes in found):
        return None
    first, last = (_shapes(enc, axis, n) for n in (low, high))
    axes = {name: a for name, a in (found[0] or {}).items() if a is not None}
    return {name: (a, first[name][a] if low else 0, last[name][a]) for name, a in axes.items()}


def joined(encodings: Sequence[Encoding], axis: int) -> tuple[Encoding, dict[str, int]] | None:
    """The encoding of tensors one after the other along `axis`, and the axis of each part.

    None where they are stored in different ways, share a scale along that axis, or where the end of
    one is not the end of a block."""
    first, *others = encodings
    ends = [cut_axes(enc, axis, enc.shape[axis]) for enc in encodings[:-1]]
    size = sum(enc.shape[axis] for enc in encodings)
    shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
    alike = all(replace(enc, shape=shape) == replace(first, shape=shape) for enc in others)
    if not alike or not ends or any(axes is None for axes in ends):
        return None
    axes = {name: a for name, a in (ends[0] or {}).items() if a is not None}
    return (replace(first, shape=shape), axes) if len(axes) == len(ends[0] or {}) else None


def _shapes(enc: Encoding, axis: int, size: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the parts of a tensor of this size along `axis`."""
    sized = replace(enc, shape=(*enc.shape[:axis], size, *enc.shape[axis + 1 :]))
    return {name: shape for name, (shape, _) in get_format(enc.format).storage(sized).items()}


F32 = np.float32
CHUNK = 1 << 15  # values; a few float32 temporaries of this size fit a second-level cache

Index = tuple[slice, ...]
Piece = tuple[Index, Index, Encoding]
Binary = Callable[[np.ndarray, np.ndarray], np.ndarray]


def chunks(enc: Encoding) -> Iterator[Piece]:
    """Slices of the tensor and of its grid that cover both, and each piece's encoding.

    Pieces are cut along leading axes at whole blocks, never along the last axis."""
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
