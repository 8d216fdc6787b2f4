"""Bit fields of ggml blocks: reading over `ArrayOps`, writing in NumPy.

Bytes travel as i8 bits; a field is masked right after its shift, so signs never matter.
"""

from typing import Any

import numpy as np

from jq.base.errors import FormatError
from jq.formats.arrays import Array, ArrayOps


def full(ops: ArrayOps, x: Array, value: float, dtype: Any = None) -> Array:
    """`value` everywhere, in the shape of `x` and its type (or `dtype`)."""
    scalar = ops.constant(np.asarray(value, dtype or ops.dtype(x)))
    return ops.broadcast(scalar, ops.shape(x), ())


def cut(ops: ArrayOps, x: Array, start: int, stop: int) -> Array:
    """`x[..., start:stop]`."""
    shape = ops.shape(x)
    low = [0] * (len(shape) - 1) + [start]
    return ops.slice(x, low, [*shape[:-1], stop])


def mask(ops: ArrayOps, x: Array, bits: int) -> Array:
    """`x & bits`, element by element: integers of any shape, and a pattern of their type."""
    return ops.bit_and(x, full(ops, x, bits))


def shift_right(ops: ArrayOps, x: Array, count: int) -> Array:
    """`x >> count`, element by element; the sign is kept in signed types. 0 <= count < width."""
    return ops.shift_right(x, full(ops, x, count))


def shift_left(ops: ArrayOps, x: Array, count: int) -> Array:
    """`x << count`, element by element, in the type of `x`. 0 <= count < width."""
    return ops.shift_left(x, full(ops, x, count))


def fields(ops: ArrayOps, x: Array, run: int, width: int) -> Array:
    """Splits every byte into its `8 / width` fields.

    Bytes come in runs of `run`: first the lowest field of each byte of the run, then the
    next field of each, and so on. x: i8 [..., n] -> i8 [..., n * 8 / width].
    """
    *lead, n = ops.shape(x)
    shifts = np.arange(0, 8, width, dtype=np.int8)
    shape = [*lead, n // run, len(shifts), run]
    axis = len(shape) - 1
    grouped = ops.reshape(x, [*lead, n // run, run])
    wide = ops.broadcast(grouped, shape, [*range(axis - 1), axis])
    moved = ops.shift_right(wide, ops.broadcast(ops.constant(shifts), shape, [axis - 1]))
    return ops.reshape(mask(ops, moved, (1 << width) - 1), [*lead, n * len(shifts)])


def half(ops: ArrayOps, x: Array) -> Array:
    """f16 values from little-endian byte pairs. x: i8 [..., 2] -> f32 [..., 1]."""
    low = mask(ops, ops.convert(cut(ops, x, 0, 1), np.int16), 0xFF)
    high = shift_left(ops, ops.convert(cut(ops, x, 1, 2), np.int16), 8)
    return ops.convert(ops.bitcast(ops.bit_or(low, high), np.float16), np.float32)


def pack(values: np.ndarray, run: int, width: int) -> np.ndarray:
    """Inverse of `fields`: u8 [blocks, n] of `width`-bit values -> u8 [blocks, n * width / 8]."""
    count = 8 // width
    grouped = values.reshape(len(values), -1, count, run)
    out = grouped[:, :, 0].copy()
    for i in range(1, count):
        out |= grouped[:, :, i] << np.uint8(i * width)
    return out.reshape(len(values), -1)


def round_to_half(x: np.ndarray) -> np.ndarray:
    """f32 values of f16, refused where f16 overflows."""
    with np.errstate(over="ignore"):
        rounded = x.astype(np.float16).astype(np.float32)
    if not np.isfinite(rounded).all():
        raise FormatError(f"a ggml block scale of {np.abs(x).max():g} is beyond float16")
    return rounded


def half_bytes(x: np.ndarray) -> np.ndarray:
    """f32 [n, 1] -> u8 [n, 2]: little-endian f16, refused where f16 overflows."""
    return round_to_half(x).astype("<f2").view(np.uint8)
