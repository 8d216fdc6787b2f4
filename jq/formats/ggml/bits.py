"""Bit fields of ggml blocks: reading over `ArrayOps`, writing in NumPy.

Bytes travel as i8 bits; a field is masked right after its shift, so signs never matter."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zlib import decompress

import numpy as np

from jq.base.errors import FormatError
from jq.formats.arrays import Array, ArrayOps
from jq.formats.packing import numbers


def cut(ops: ArrayOps, x: Array, start: int, stop: int) -> Array:
    """`x[..., start:stop]`."""
    shape = ops.shape(x)
    return ops.slice(x, [0] * (len(shape) - 1) + [start], [*shape[:-1], stop])


def fields(ops: ArrayOps, x: Array, run: int, width: int) -> Array:
    """Splits every byte into its `8 / width` fields.

    Bytes come in runs of `run`: first the lowest field of each byte of the run, then the
    next field of each, and so on. x: i8 [..., n] -> i8 [..., n * 8 / width]."""
    *lead, n = ops.shape(x)
    shifts = np.arange(0, 8, width, dtype=np.int8)
    shape = [*lead, n // run, len(shifts), run]
    axis = len(shape) - 1
    grouped = ops.reshape(x, [*lead, n // run, run])
    wide = ops.broadcast(grouped, shape, [*range(axis - 1), axis])
    moved = ops.shift_right(wide, ops.broadcast(ops.constant(shifts), shape, [axis - 1]))
    return ops.reshape(ops.bit_and(moved, (1 << width) - 1), [*lead, n * len(shifts)])


def half(ops: ArrayOps, x: Array) -> Array:
    """f16 values from little-endian byte pairs. x: i8 [..., 2] -> f32 [..., 1]."""
    return ops.convert(ops.bitcast(numbers(ops, x, 2, np.int16), np.float16), np.float32)


def pack(values: np.ndarray, run: int, width: int) -> np.ndarray:
    """Inverse of `fields`: u8 [blocks, n] of `width`-bit values -> u8 [blocks, n * width / 8]."""
    count = 8 // width
    grouped = values.reshape(len(values), -1, count, run)
    out = grouped[:, :, 0].copy()
    for i in range(1, count):
        out |= grouped[:, :, i] << np.uint8(i * width)
    return out.reshape(len(values), -1)


@dataclass(frozen=True)
class Numbers:
    """Numbers of a block whose bits lie in several stretches of its bytes.

    Attributes:
        stretches: those of the lowest bits first: start and end of the bytes, and `run` and `width`
            of `fields`."""

    stretches: tuple[tuple[int, int, int, int], ...]

    def read(self, ops: ArrayOps, blocks: Array) -> Array:
        """i8 [..., bytes] -> i8 [..., numbers], from 0 on; those of 8 bits have a sign."""
        found, low = None, 0
        for start, stop, run, width in self.stretches:
            part = cut(ops, blocks, start, stop)
            part = part if width == 8 else fields(ops, part, run, width)
            found = part if found is None else ops.bit_or(found, ops.shift_left(part, low))
            low += width
        return found

    def write(self, values: np.ndarray, out: np.ndarray) -> None:
        """Writes u8 [n, numbers] into u8 out [n, bytes], whose other bytes stay."""
        for start, stop, run, width in self.stretches:
            out[:, start:stop] = pack(values & ((1 << width) - 1), run, width)
            values = values >> width


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


# Grids of ggml's IQ types: the points that a group of 8 or 4 values can be.
#
# A grid is a sorted set of points, each the digits of a number in base 3 (8 values) or 8 (4
# values), the first value lowest. A set is one bit for each number that there is, and all six
# together are compressed. The sets are facts of the file format; tests compare with `gguf.quants`.
_SETS = decompress((Path(__file__).parent / "grids.zlib").read_bytes())
_PLACES = {
    "iq2_xxs": (0, 3, 8),
    "iq2_xs": (821, 3, 8),
    "iq2_s": (1642, 3, 8),
    "iq1": (2463, 3, 8),
    "iq3_xxs": (3284, 8, 4),
    "iq3_s": (3796, 8, 4),
}


@cache
def grid(name: str) -> np.ndarray:
    """u8 [points, 8 or 4]: the levels of each value, from 0, in the order of a file's indices."""
    start, base, digits = _PLACES[name]
    count = base**digits
    packed = np.frombuffer(_SETS, np.uint8, -(-count // 8), start)
    numbers = np.flatnonzero(np.unpackbits(packed, count=count))
    return (numbers[:, None] // base ** np.arange(digits) % base).astype(np.uint8)


@cache
def words(name: str) -> np.ndarray:
    """i16 [points]: the levels of a point side by side, 2 bits each of 8 values, 4 bits of 4."""
    points = grid(name).astype(np.uint32)
    width = 16 // points.shape[1]
    bits: np.ndarray = (points << width * np.arange(points.shape[1], dtype=np.uint32)).sum(axis=1)
    return bits.astype(np.uint16).view(np.int16)
