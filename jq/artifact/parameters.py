"""Parameter files: weights that lie beside the module.

IREE's runtime finds a parameter by its key and checks its size alone. So the files say what their
tensors are, in the metadata that IREE's own tools write, and `check_parameters` compares."""

import hashlib
import json
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
from iree import runtime as rt

from jq.base.errors import UserError, check_known
from jq.base.system.files import check_input
from jq.formats import bytes_of
from jq.frontends.safetensors import write_tensors

_ALIGN = 64  # of the data; an aligned tensor of a mapped file is used in place
_METADATA = "TENSORv0:"
# Archive header (version 0.0), and an entry of type "data". From iree/schemas/parameter_archive.h
_HEADER = struct.Struct("<4sHHQQQQ6Q")
_ENTRY = struct.Struct("<QIQ4QQ2Q")
_DATA = 2
_LEAST = 48  # bytes of any entry: its size, type, flags, key and metadata
_MAGIC = b"IRPA"


@dataclass(frozen=True)
class Parameter:
    """An entry of a file, under one key. `dtype` is NumPy's name (or one of `ml_dtypes`)."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: np.ndarray) -> "Parameter":
        return cls(array.dtype.name, tuple(array.shape))

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def write_parameters(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an archive, `.irpa` or `.safetensors` by the file's name. Nothing is copied whole.

    Raises:
        OSError: the disk is full or not writable. (IREE's own writer maps the file instead, and
            a full disk then ends the process.)"""
    check_known("kind of parameter file", path.suffix, _WRITERS)
    with path.open("wb") as file:
        _WRITERS[path.suffix](file, arrays)


def _write_irpa(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    entries, strings, offset = b"", b"", 0
    for key, array in arrays.items():
        content = {"type": "Tensor", "dtype": array.dtype.name, "shape": list(array.shape)}
        name, metadata = key.encode(), (_METADATA + json.dumps(content)).encode()
        entry = _ENTRY.pack(
            _ENTRY.size,
            _DATA,
            0,
            *(len(strings), len(name)),
            *(len(strings) + len(name), len(metadata)),
            _ALIGN,
            *(offset, array.nbytes),
        )
        entries = _padded(entries, 16) + entry
        strings += name + metadata
        offset = _aligned(offset + array.nbytes, _ALIGN)
    first = _aligned(_HEADER.size, 16)
    middle = first + len(entries)
    data = _aligned(middle + len(strings), _ALIGN)
    segments = (first, len(entries), middle, len(strings), data, offset)
    header = _HEADER.pack(_MAGIC, 0, 0, _HEADER.size, 0, 0, len(arrays), *segments)
    file.write(_padded(_padded(header, 16) + entries + strings, _ALIGN))
    for array in arrays.values():
        file.writelines(piece.data for piece in bytes_of(array))
        file.write(bytes(_aligned(array.nbytes, _ALIGN) - array.nbytes))


def _write_safetensors(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """The widest types come first, so that every tensor begins at a multiple of its element."""
    write_tensors(file, dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)))


_WRITERS = {".irpa": _write_irpa, ".safetensors": _write_safetensors}


def check_parameters(path: Path, expected: Mapping[str, Parameter]) -> None:
    """Compares the keys, types and shapes of an archive; a difference is a `UserError`."""
    found = read_index(path)
    if missing := expected.keys() - found.keys():
        raise UserError(f"{path.name} lacks the parameter {min(missing)!r}", location=str(path))
    for key, parameter in expected.items():
        known, size = found[key]
        dtype = np.dtype(getattr(ml_dtypes, parameter.dtype, parameter.dtype))
        need = math.prod(parameter.shape) * dtype.itemsize
        if (known is not None and known != parameter) or size != need:
            held = known or f"{size} bytes"
            raise UserError(f"parameter {key!r} is {held}, not {parameter}", location=str(path))


def read_index(path: Path) -> dict[str, tuple[Parameter | None, int]]:
    """Key -> (what it is when the file says so, bytes) of a file that IREE can read."""
    index = load_index(path)
    try:
        return {
            key: (_parse(bytes(entry.metadata).decode(errors="replace")), entry.length)
            for key, entry in index.items()
        }
    except RuntimeError as error:  # of the bindings
        where = str(path)
        raise UserError("cannot read parameters: a key is no UTF-8", location=where) from error


def load_index(path: Path) -> Any:
    """IREE's index over a mapped file; a damaged file is a `UserError`, and one that is none: IREE
    waits for whoever writes into a pipe."""
    size = check_input(path)
    if path.suffix == ".irpa":
        _check_archive(path, size)
    index = rt.ParameterIndex()
    try:
        index.load(str(path))
    except (RuntimeError, ValueError, LookupError, OSError, MemoryError) as error:
        reason = str(error).partition(".c:")[2].partition("; ")[2] or str(error)
        raise UserError(f"cannot read parameters: {reason}", location=str(path)) from error
    return index


def _check_archive(path: Path, size: int) -> None:
    """Refuses what lies outside of the file, of `size` bytes: IREE adds begins and lengths in 64
    bits, which wraps, and then reads wherever that is (SIGSEGV)."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            return  # IREE says so itself
        *_, following, _, count, entries, length, names, named, data, held = _HEADER.unpack(header)
        segments = ((entries, length), (names, named), (data, held))
        inside = following == 0 and all(begin + extent <= size for begin, extent in segments)
        file.seek(entries if inside else 0)
        table = file.read(length) if inside else b""
    at = 0
    table += bytes(_ENTRY.size)  # other kinds of entries are shorter
    while inside and count:
        if inside := at + _LEAST <= length:
            entry, kind, _, *texts, _, first, stored = _ENTRY.unpack_from(table, at)
            inside = entry >= _LEAST and at + entry <= length
            inside &= all(a + n <= named for a, n in (texts[:2], texts[2:]))
            inside &= kind != _DATA or first + stored <= held
            at, count = _aligned(at + entry, 16), count - 1
    if not inside:
        reason = "cannot read parameters: a part of it lies outside of the file"
        raise UserError(reason, location=str(path))


def read_checked(path: Path, size: int, digest: str) -> mmap.mmap:
    """The content of a file, in memory of our own, if it is still what the manifest says.

    Not mapped: a file that is changed under a loaded model would change its results, and one that
    is cut off would end the process (SIGBUS). What is checked is what is used."""
    if check_input(path) == size:
        memory = mmap.mmap(-1, max(size, 1))
        with path.open("rb") as file:
            whole = file.readinto(memoryview(memory)[:size]) == size
        if whole and hashlib.sha256(memoryview(memory)[:size]).hexdigest() == digest:
            return memory
    raise changed(path)


def changed(path: Path) -> UserError:
    """The error for a file that is not what the manifest says any more."""
    reason = "the file changed since the artifact was loaded"
    return UserError(reason, location=str(path), hint="load it again")


def _parse(metadata: str) -> Parameter | None:
    if not metadata.startswith(_METADATA):
        return None
    try:
        content = json.loads(metadata.removeprefix(_METADATA))
        return Parameter(str(content["dtype"]), tuple(int(n) for n in content["shape"]))
    except (ValueError, KeyError, TypeError):
        return None


def _aligned(n: int, to: int) -> int:
    return -(-n // to) * to


def _padded(data: bytes, to: int) -> bytes:
    return data + bytes(_aligned(len(data), to) - len(data))
