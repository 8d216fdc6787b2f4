"""The header of a GGUF file: metadata and where each tensor lies, checked against the file, which
may lie: nothing is read, or allocated, past its end.

Layout (versions 2 and 3, little endian): magic `GGUF`, u32 version, u64 tensor count, u64 metadata
count; per key a string, u32 value type, value; per tensor a name, u32 rank, u64 dimensions (fastest
first), u32 type, u64 offset; padding to the alignment; data. A string is a u64 length and UTF-8
bytes. Source: ggml's `docs/gguf.md`."""

import math
import struct
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from jq.base.errors import UserError
from jq.frontends.gguf.types import TYPES, TensorType

# A header may hold this many keys, tensors, strings and array elements that become Python
# objects. The largest vocabularies have about 2^18 tokens and as many merges.
MAX_ITEMS = 1 << 22
MAX_DEPTH = 4  # of arrays in arrays

_SCALARS = dict(enumerate(["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "u1"]))
_SCALARS |= {10: "<u8", 11: "<i8", 12: "<f8"}
_BOOL, _STRING, _ARRAY = 7, 8, 9


class Cursor:
    """Walks over the little-endian header of a GGUF file, `data`, of which `path` is the name."""

    def __init__(self, data: Any, path: str) -> None:
        self.data, self.path, self.size = data, path, len(data)
        self.offset = 0
        self.items = 0

    def refuse(self, message: str, offset: int | None = None) -> NoReturn:
        at = self.offset if offset is None else offset
        raise UserError(f"not a valid GGUF file: {message}", location=f"{self.path}, byte {at}")

    def need(self, count: int, what: str) -> None:
        """Refuses when fewer than `count` bytes are left."""
        if count > self.size - self.offset:
            self.refuse(f"{what} needs {count} bytes, {self.size - self.offset} are left")

    def count_items(self, count: int, what: str) -> None:
        self.items += count
        if self.items > MAX_ITEMS:
            self.refuse(f"{what} makes more than {MAX_ITEMS} header entries")

    def number(self, kind: str, what: str) -> Any:
        """One value of `struct` type `kind`."""
        size = struct.calcsize(kind)
        self.need(size, what)
        (value,) = struct.unpack_from("<" + kind, self.data, self.offset)
        self.offset += size
        return value

    def string(self, what: str) -> str:
        start = self.offset
        length = self.number("Q", f"length of {what}")
        self.need(length, what)
        raw = bytes(self.data[self.offset : self.offset + length])
        self.offset += length
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self.refuse(f"{what} is not UTF-8", start)

    def value(self, kind: int, what: str) -> Any:
        """A metadata value: str, bool, int, float, a NumPy array of numbers, or a list."""
        if kind == _ARRAY:
            return self._array(what, 1)
        if kind == _STRING:
            return self.string(what)
        if kind not in _SCALARS:
            self.refuse(f"{what} has unknown value type {kind}")
        return self._numbers(kind, 1, what)[0].item()

    def _numbers(self, kind: int, count: int, what: str) -> np.ndarray:
        dtype = np.dtype(_SCALARS[kind])
        self.need(count * dtype.itemsize, what)
        given = (self.data, dtype, count, self.offset)
        values = np.frombuffer(*given) if count else np.empty(0, dtype)
        self.offset += count * dtype.itemsize
        return values != 0 if kind == _BOOL else values.copy()

    def _array(self, what: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self.refuse(f"{what} nests arrays more than {MAX_DEPTH} deep")
        kind = self.number("I", f"element type of {what}")
        count = self.number("Q", f"length of {what}")
        if kind in _SCALARS:
            return self._numbers(kind, count, what)
        if kind not in (_STRING, _ARRAY):
            self.refuse(f"{what} has unknown element type {kind}")
        self.need(count * (8 if kind == _STRING else 12), what)
        self.count_items(count, what)
        if kind == _STRING:
            return [self.string(what) for _ in range(count)]
        return [self._array(what, depth + 1) for _ in range(count)]


_VERSIONS = (2, 3)
_MAX_RANK = 4
_ALIGNMENT = "general.alignment"


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's NumPy shape (slowest axis first), type, and place in the file in bytes."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """`spans`: where each key of the metadata, with its value, begins and ends in the file."""

    version: int
    alignment: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    spans: dict[str, tuple[int, int]]


def read_header(data: Any, path: str) -> Header:
    """Parses and checks the header in `data` (bytes or a memory map of the whole file)."""
    cursor = Cursor(data, path)
    version = _version(cursor)
    tensor_count = cursor.number("Q", "tensor count")
    key_count = cursor.number("Q", "metadata count")
    cursor.need(tensor_count * 24, f"a header of {tensor_count} tensors")
    cursor.need(key_count * 13, f"metadata of {key_count} keys")
    cursor.count_items(tensor_count + key_count, "the number of tensors and keys")
    metadata: dict[str, Any] = {}
    spans: dict[str, tuple[int, int]] = {}
    for _ in range(key_count):
        begin = cursor.offset
        key = _read_key(cursor, metadata)
        spans[key] = begin, cursor.offset
    alignment = _alignment(cursor, metadata)
    tensors: dict[str, TensorInfo] = {}
    for _ in range(tensor_count):
        _read_tensor(cursor, tensors, alignment)
    start = -(-cursor.offset // alignment) * alignment
    return Header(version, alignment, metadata, _placed(cursor, tensors, start), spans)


def _version(cursor: Cursor) -> int:
    cursor.need(24, "the fixed part of the header")
    if bytes(cursor.data[:4]) != b"GGUF":
        cursor.refuse("it does not begin with the bytes 'GGUF'")
    cursor.offset = 4
    version: int = cursor.number("I", "version")
    if version and version & 0xFFFF == 0:
        cursor.refuse("it is big endian, and only little-endian files are read", 4)
    if version not in _VERSIONS:
        cursor.refuse(f"version {version} is not one of {', '.join(map(str, _VERSIONS))}", 4)
    return version


def _read_key(cursor: Cursor, metadata: dict[str, Any]) -> str:
    start = cursor.offset
    key = cursor.string("a metadata key")
    if key in metadata:
        cursor.refuse(f"metadata key {key!r} occurs twice", start)
    metadata[key] = cursor.value(cursor.number("I", f"type of {key!r}"), f"metadata {key!r}")
    return key


def _alignment(cursor: Cursor, metadata: dict[str, Any]) -> int:
    value = metadata.get(_ALIGNMENT, 32)
    if type(value) is not int or not 0 < value <= 1 << 32 or value & (value - 1):
        cursor.refuse(f"{_ALIGNMENT} must be a power of two, got {value!r:.40}")
    return value


def _read_tensor(cursor: Cursor, tensors: dict[str, TensorInfo], alignment: int) -> None:
    """Adds one entry; its offset is still relative to the start of the data."""
    start = cursor.offset
    name = cursor.string("a tensor name")
    own = f"tensor {name!r}"
    if name in tensors:
        cursor.refuse(f"{own} occurs twice", start)
    if (rank := cursor.number("I", f"rank of {own}")) > _MAX_RANK:
        cursor.refuse(f"{own} has {rank} dimensions, at most {_MAX_RANK} are possible", start)
    dims = [cursor.number("Q", f"a dimension of {own}") for _ in range(rank)]
    number, offset = cursor.number("I", f"type of {own}"), cursor.number("Q", f"offset of {own}")
    if number not in TYPES:
        cursor.refuse(f"{own} has unknown type {number}", start)
    kind = TYPES[number]
    if 0 in dims:
        cursor.refuse(f"{own} has a dimension of 0: {dims[::-1]}", start)
    if (row := dims[0] if dims else 1) % kind.block:
        cursor.refuse(f"{own} has rows of {row}, no multiple of {kind.name}'s {kind.block}", start)
    if offset % alignment:
        cursor.refuse(f"{own} lies at {offset}, not aligned to {alignment}", start)
    nbytes = math.prod(dims) // kind.block * kind.bytes
    tensors[name] = TensorInfo(name, tuple(reversed(dims)), kind, offset, nbytes)


def _placed(cursor: Cursor, tensors: dict[str, TensorInfo], start: int) -> dict[str, TensorInfo]:
    """The same with offsets from the start of the file; all inside it and none on another."""
    end, before = start, ""
    placed = {}
    for info in sorted(tensors.values(), key=lambda t: t.offset):
        offset = start + info.offset
        if offset < end:
            cursor.refuse(f"tensor {info.name!r} overlaps tensor {before!r}", offset)
        end, before = offset + info.nbytes, info.name
        if end > cursor.size:
            what = f"tensor {info.name!r} of {info.nbytes} bytes ends at {end}"
            cursor.refuse(f"{what}, the file at {cursor.size}", offset)
        placed[info.name] = TensorInfo(info.name, info.shape, info.type, offset, info.nbytes)
    return {name: placed[name] for name in tensors}
