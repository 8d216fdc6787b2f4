"""Fields of 2, 3, 4 or 6 bits, packed into int8 bytes along the last axis, lowest bits first.

Every row of the last axis is filled to whole bytes (3-bit and 6-bit fields: to whole groups of
eight or four fields in three bytes), so a slice along leading axes is the same slice of the bytes.
A scalar is packed as one row of one field. Fields of 8 bits and more are stored as they are."""

import math
from typing import Any

import numpy as np

from jq.base.errors import FormatError
from jq.formats.arrays import Array, ArrayOps
from jq.formats.blocks import crop

PACKED = frozenset({1, 2, 3, 4, 6})  # bits of fields that fill bytes in groups; others take a byte


def _group(bits: int) -> tuple[int, int]:
    """Fields and bytes that are packed together."""
    return (24 // bits, 3) if bits in (3, 6) else (8 // bits, 1)


def packed_shape(shape: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """The shape of the bytes that hold fields of this shape."""
    if bits >= 8:
        return shape
    fields, nbytes = _group(bits)
    return (*shape[:-1], math.ceil((shape[-1] if shape else 1) / fields) * nbytes)


def pack(fields: np.ndarray, bits: int, fill: int = 0) -> np.ndarray:
    """int8 bytes of int8 fields in [0, 2^bits); `fill` is the field that completes each row."""
    if bits >= 8:
        return fields
    per, nbytes = _group(bits)
    fields = np.atleast_1d(fields).view(np.uint8)
    if short := -fields.shape[-1] % per:
        widths = [(0, 0)] * (fields.ndim - 1) + [(0, short)]
        fields = np.pad(fields, widths, constant_values=fill)
    if nbytes == 1:
        words = np.ascontiguousarray(fields).view(f"<u{per}")  # a byte for each field
        out = words >> np.uint8(8 - bits) | words
        for i in range(2, per):
            out |= words >> np.uint8((8 - bits) * i)
        return out.astype(np.uint8).view(np.int8)
    word = np.zeros((*fields.shape[:-1], fields.shape[-1] // per), np.uint32)
    for i in range(per):
        word |= fields[..., i::per].astype(np.uint32) << np.uint32(bits * i)
    out = np.stack([word >> np.uint32(8 * i) for i in range(3)], axis=-1).astype(np.uint8)
    return out.reshape(*fields.shape[:-1], -1).view(np.int8)


def unpack(ops: ArrayOps, packed: Array, shape: tuple[int, ...], bits: int) -> Array:
    """The inverse of `pack`: fields of this shape, each in [0, 2^bits) below 8 bits.

    Raises:
        FormatError: `packed` has another shape than theirs."""
    if ops.shape(packed) != packed_shape(shape, bits):
        what = f"{bits}-bit codes of shape {shape} cannot lie in bytes of {ops.shape(packed)}"
        raise FormatError(what)
    if bits >= 8:
        return packed
    per, nbytes = _group(bits)
    words = packed if nbytes == 1 else numbers(ops, packed, nbytes, np.int32)
    kind = ops.dtype(words)
    wide = (*ops.shape(words), per)
    shifts = ops.constant(np.arange(0, per * bits, bits, dtype=kind))
    x = ops.broadcast(words, wide, range(len(wide) - 1))
    x = ops.shift_right(x, ops.broadcast(shifts, wide, [len(wide) - 1]))
    x = ops.convert(ops.bit_and(x, 2**bits - 1), np.int8)
    rows = (*wide[:-2], wide[-2] * per)
    return ops.reshape(crop(ops, ops.reshape(x, rows), shape or (1,)), shape)


def numbers(ops: ArrayOps, x: Array, count: int, dtype: Any) -> Array:
    """Little-endian numbers of `count` bytes each: i8 [..., n] -> [..., n / count]."""
    *lead, n = ops.shape(x)
    size = (*lead, n // count)
    x = ops.reshape(ops.bit_and(ops.convert(x, dtype), 255), (*size, count))
    found = None
    for i in range(count):
        byte = ops.slice(x, [0] * len(size) + [i], [*size, i + 1])
        byte = ops.shift_left(ops.reshape(byte, size), 8 * i)
        found = byte if found is None else ops.bit_or(found, byte)
    return found
