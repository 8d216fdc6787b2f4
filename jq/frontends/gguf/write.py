"""A GGUF file with other tensors: its metadata byte for byte, but for what changes."""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jq.base.system.files import written_whole
from jq.frontends.gguf.header import Header
from jq.frontends.gguf.types import TYPES

_U32 = 4  # a value type of metadata


@dataclass(frozen=True)
class NewTensor:
    """A tensor to be written: NumPy shape, type by ggml's name, and what gives its data."""

    name: str
    shape: tuple[int, ...]
    type: str
    data: Callable[[], np.ndarray]

    @property
    def number(self) -> int:
        return next(n for n, kind in TYPES.items() if kind.name == self.type)

    @property
    def nbytes(self) -> int:
        kind = TYPES[self.number]
        return math.prod(self.shape) // kind.block * kind.bytes


def write_like(
    path: Path,
    source: Any,
    header: Header,
    tensors: Sequence[NewTensor],
    changes: Mapping[str, int],
    told: Callable[[float], None] = lambda share: None,
) -> None:
    """Writes a file with the metadata of another, and `tensors`, made one at a time.

    Args:
        path: written wholly or not at all.
        source, header: the other file's bytes and what was read of them.
        changes: keys that get another u32, or are added.
        told: hears the share of the tensors that is written."""
    alignment = header.alignment
    kept = [bytes(source[a:b]) for key, (a, b) in header.spans.items() if key not in changes]
    new = [_string(key) + struct.pack("<II", _U32, value) for key, value in changes.items()]
    entries, offset = b"", 0
    for tensor in tensors:
        dims = struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        entries += _string(tensor.name) + struct.pack("<I", len(tensor.shape)) + dims
        entries += struct.pack("<IQ", tensor.number, offset)
        offset = _aligned(offset + tensor.nbytes, alignment)
    fixed = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(kept) + len(new))
    head = fixed + b"".join(kept + new) + entries
    with written_whole(path) as temporary, temporary.open("wb") as file:
        file.write(head + bytes(_aligned(len(head), alignment) - len(head)))
        for count, tensor in enumerate(tensors, start=1):
            _write(file, tensor, alignment)
            told(count / len(tensors))


def _write(file: BinaryIO, tensor: NewTensor, alignment: int) -> None:
    data = np.ascontiguousarray(tensor.data()).reshape(-1).view(np.uint8)
    assert data.nbytes == tensor.nbytes, tensor.name
    file.write(data.data)
    file.write(bytes(_aligned(data.nbytes, alignment) - data.nbytes))


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
