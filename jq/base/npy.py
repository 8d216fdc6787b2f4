"""The form of one array in a `.npz` file: a header of text, then its bytes."""

import io
import math
import zipfile
from typing import IO, Any

import numpy as np

_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_PIECE = 1 << 20  # bytes that are read at once
_LONGEST = 1 << 16  # bytes of a header; NumPy refuses more than 10,000
Header = tuple[tuple[int, ...], bool, "np.dtype[Any]"]  # shape, whether axes are reversed, type


def member_header(members: zipfile.ZipFile, member: zipfile.ZipInfo) -> Header:
    if not member.filename.endswith(".npy"):
        raise ValueError(f"{member.filename!r:.80} is no array")
    if member.flag_bits & 1:
        raise ValueError("it is encrypted")
    if member.compress_type not in _KINDS:
        raise ValueError(f"{member.filename!r:.80} is compressed in an unknown way")
    with members.open(member) as stream:
        return header_of(stream)


def member_of(members: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with members.open(member) as stream:
        return data(stream, header_of(stream))


def header_of(stream: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"arrays of version {version}")
    reads = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
    length = stream.read(2 * version[0])  # of 16 bits, or of 32
    if (size := int.from_bytes(length, "little")) > _LONGEST:  # NumPy would read it whole
        raise ValueError(f"the header of an array has {size} bytes, at most {_LONGEST} are read")
    header = io.BytesIO(length + stream.read(size))
    shape, reversed_axes, dtype = reads[version[0] - 1](header)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if not dtype.itemsize:  # of which NumPy makes larger ones, however many there are
        raise ValueError("its elements have no size")
    if not all(isinstance(n, int) and n >= 0 for n in shape) or len(shape) > 32:
        raise ValueError(f"an array has shape {shape!r:.80}")
    return shape, reversed_axes, dtype


def bytes_of(header: Header) -> int:
    return math.prod(header[0]) * header[2].itemsize


def data(stream: IO[bytes], header: Header) -> np.ndarray:
    shape, reversed_axes, dtype = header
    size = bytes_of(header)
    content, filled = bytearray(size), 0
    with memoryview(content) as view:  # piece by piece, so that nothing is there twice
        while count := stream.readinto(view[filled : filled + _PIECE]):  # type: ignore[attr-defined]
            filled += count
    if filled != size or stream.read(1):
        raise ValueError(f"an array of {size} bytes has {'more' if filled == size else 'less'}")
    array = np.frombuffer(content, dtype) if size else np.empty(shape, dtype)
    return array.reshape(shape[::-1]).T if reversed_axes else array.reshape(shape)
