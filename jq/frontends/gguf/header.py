"""The header of a GGUF file: metadata and where each tensor lies, checked against the file.

Layout (versions 2 and 3, little endian): magic `GGUF`, u32 version, u64 tensor count, u64
metadata count; per key a string, u32 value type, value; per tensor a name, u32 rank, u64
dimensions (fastest first), u32 type, u64 offset; padding to the alignment; data. A string
is a u64 length and UTF-8 bytes. Source: ggml's `docs/gguf.md`.
"""

import math
from dataclasses import dataclass
from typing import Any

from jq.frontends.gguf.cursor import Cursor
from jq.frontends.gguf.types import TYPES, TensorType

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
    return Header(version, metadata, _placed(cursor, tensors, start), spans)


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
    kind = cursor.number("I", f"type of {key!r}")
    metadata[key] = cursor.value(kind, f"metadata {key!r}")
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
    if name in tensors:
        cursor.refuse(f"tensor {name!r} occurs twice", start)
    rank = cursor.number("I", f"rank of tensor {name!r}")
    if rank > _MAX_RANK:
        cursor.refuse(
            f"tensor {name!r} has {rank} dimensions, at most {_MAX_RANK} are possible", start
        )
    dims = [cursor.number("Q", f"a dimension of tensor {name!r}") for _ in range(rank)]
    number = cursor.number("I", f"type of tensor {name!r}")
    offset = cursor.number("Q", f"offset of tensor {name!r}")
    if number not in TYPES:
        cursor.refuse(f"tensor {name!r} has unknown type {number}", start)
    kind = TYPES[number]
    if 0 in dims:
        cursor.refuse(f"tensor {name!r} has a dimension of 0: {dims[::-1]}", start)
    row = dims[0] if dims else 1
    if row % kind.block:
        cursor.refuse(
            f"tensor {name!r} has rows of {row}, no multiple of {kind.name}'s {kind.block}", start
        )
    if offset % alignment:
        cursor.refuse(f"tensor {name!r} lies at {offset}, not aligned to {alignment}", start)
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
            cursor.refuse(
                f"tensor {info.name!r} of {info.nbytes} bytes ends at {end}, "
                f"the file at {cursor.size}",
                offset,
            )
        placed[info.name] = TensorInfo(info.name, info.shape, info.type, offset, info.nbytes)
    return {name: placed[name] for name in tensors}
