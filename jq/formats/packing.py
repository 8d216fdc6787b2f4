"""Codes below eight bits, packed into int8 bytes along the last axis, lowest bits first.

A code is stored with an offset, `code + 2^(bits-1)`, so that it is unpacked by a shift, a
mask and a subtraction, without sign extension. Every row of the last axis is filled to whole
bytes with the code of zero: a slice along leading axes is the same slice of the bytes.
A scalar is packed as one row of one code.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.blocks import crop, full


def packed_shape(shape: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """Shape of the bytes that hold codes of `shape`."""
    if bits >= 8:
        return shape
    return (*shape[:-1], math.ceil((shape[-1] if shape else 1) * bits / 8))


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """Signed codes in int8 to bytes in int8; `bits` is 2, 4, or 8 and more (unchanged)."""
    if bits >= 8:
        return codes
    per, half = 8 // bits, 1 << (bits - 1)
    codes = codes.reshape(1) if codes.ndim == 0 else codes
    short = -codes.shape[-1] % per
    if short:
        codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, short)])
    fields = (codes + np.int8(half)).view(np.uint8).reshape(*codes.shape[:-1], -1, per)
    out = fields[..., 0].copy()
    for i in range(1, per):
        out |= fields[..., i] << np.uint8(bits * i)
    return cast("np.ndarray[Any, Any]", out.view(np.int8))


def unpack(ops: ArrayOps, packed: Array, shape: tuple[int, ...], bits: int) -> Array:
    """The signed int8 codes of `shape`."""
    if bits >= 8:
        return packed
    per, half = 8 // bits, 1 << (bits - 1)
    wide = (*ops.shape(packed), per)
    shifts = ops.constant(np.arange(0, 8, bits, dtype=np.int8))
    x = ops.broadcast(packed, wide, range(len(wide) - 1))
    x = ops.shift_right(x, ops.broadcast(shifts, wide, [len(wide) - 1]))
    x = ops.bit_and(x, full(ops, 2**bits - 1, wide, np.int8))
    x = ops.sub(x, full(ops, half, wide, np.int8))
    rows = (*wide[:-2], wide[-2] * per)
    return ops.reshape(crop(ops, ops.reshape(x, rows), shape or (1,)), shape)
