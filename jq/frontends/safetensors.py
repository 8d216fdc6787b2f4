"""Tensors of `.safetensors` files, over the mapped file: the package copies what it reads, and
gives NumPy no bfloat16.

Layout: u64 length of a JSON header, the header, the data. Source: the format's own description at
https://github.com/huggingface/safetensors."""

import itertools
import json
import math
from collections.abc import Callable, Mapping
from os.path import lexists
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from jq.base.errors import UserError
from jq.base.system.files import as_object, json_object, mapped, once
from jq.formats import Deferred, bytes_of

Arrays = Mapping[str, np.ndarray | Deferred]
Told = Callable[[float], None]
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MOST_AXES = 64  # of an array of NumPy
_LARGEST_HEADER = 100 << 20  # the format's own limit
_TYPES = {"BF16": ml_dtypes.bfloat16, "C64": "<c8", "F8_E4M3": ml_dtypes.float8_e4m3fn}
_TYPES |= {"F8_E5M2": ml_dtypes.float8_e5m2, "BOOL": np.bool_}
_TYPES |= {f"F{n}": f"<f{n // 8}" for n in (16, 32, 64)}
_TYPES |= {f"{kind}{n}": f"<{kind.lower()}{n // 8}" for kind in "IU" for n in (8, 16, 32, 64)}
_NAMES = {np.dtype(dtype).name: kind for kind, dtype in _TYPES.items()}


def read_folder(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of a model: of one file, or of those that an index names."""
    shards = read_shards(folder).values()
    return {name: array for tensors in shards for name, array in tensors.items()}


def read_shards(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """The same by file, in the order of their names: what the index says is in each."""
    index = folder / INDEX
    if not index.exists():
        if not lexists(folder / SINGLE):
            hint = "transformers makes it of a .bin: save_pretrained" * any(folder.glob("*.bin"))
            raise UserError(f"this folder has no {SINGLE}", location=str(folder), hint=hint)
        return {SINGLE: read_file(folder / SINGLE)}
    found = json_object(index).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise UserError("the index has no weight_map", location=str(index))
    files: dict[str, dict[str, np.ndarray]] = {}
    for file in sorted(set(found.values())):
        if Path(file).name != file:
            what = f"the index names a file outside of its folder: {file}"
            raise UserError(what, location=str(index))
        if not lexists(folder / file):
            raise UserError(f"{file} is missing, which the index names", location=str(index))
        held, own = read_file(folder / file), [n for n, where in found.items() if where == file]
        if missing := [name for name in own if name not in held]:
            raise UserError(f"{file} lacks the tensor {missing[0]!r}", location=str(index))
        files[file] = {name: held[name] for name in own}
    return files


def read_file(path: Path) -> dict[str, np.ndarray]:
    """Read-only arrays by name; nothing of the data is touched."""
    data = mapped(path)
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _LARGEST_HEADER):
        raise _wrong(f"a header of {length} bytes does not fit", path, 0)
    header = as_object(data[8 : 8 + length], f"{path}, byte 8", once)
    header.pop("__metadata__", None)
    found = {name: _tensor(data, name, entry, 8 + length, path) for name, entry in header.items()}
    _check_apart({name: header[name]["data_offsets"] for name in found}, path)
    return found


def _check_apart(places: dict[str, list[int]], path: Path) -> None:
    """No byte is of two tensors: readers would disagree on what the file holds."""
    order = sorted((start, end, name) for name, (start, end) in places.items() if end > start)
    for (_, end, first), (start, _, second) in itertools.pairwise(order):
        if start < end:
            raise _wrong(f"tensors {first!r} and {second!r} overlap", path, start)


def _tensor(data: Any, name: str, entry: Any, start: int, path: Path) -> np.ndarray:
    try:
        kind, shape, (first, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        sound = isinstance(kind, str)
        sound &= all(type(n) is int and n >= 0 for n in (*shape, first, end))
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise _wrong(f"the entry of tensor {name!r} is {entry!r:.80}", path, 8)
    if kind not in _TYPES:
        raise _wrong(f"tensor {name!r} has type {kind!r}, which is not known", path, start + first)
    dtype, count = np.dtype(_TYPES[kind]), math.prod(shape)
    if len(shape) > MOST_AXES:
        raise _wrong(f"tensor {name!r} has {len(shape)} axes, {MOST_AXES} at most", path, 8)
    if end - first != count * dtype.itemsize or start + end > len(data):
        place = f"{first} to {end} of {len(data) - start} bytes"
        raise _wrong(f"tensor {name!r}, {kind}{shape}, is at {place}", path, start + first)
    return np.frombuffer(data, dtype, count, start + first).reshape(shape)


def _wrong(reason: str, path: Path, offset: int) -> UserError:
    return UserError(f"not a valid safetensors file: {reason}", location=f"{path}, byte {offset}")


def write_tensors(
    file: BinaryIO, arrays: Arrays, told: Told = lambda share: None, **about: str
) -> None:
    """Writes arrays by name, one after the other, so that none is held that is deferred; `told`
    hears the share that is done, `about` is the file's metadata.

    Raises:
        UserError: the format has no type of an array's."""
    header: dict[str, Any] = {"__metadata__": about} if about else {}
    offset = 0
    for name, array in arrays.items():
        if (kind := _NAMES.get(array.dtype.name)) is None:
            raise UserError(f".safetensors holds no {array.dtype}", op=name, hint="use .irpa")
        ends = [offset, offset + array.nbytes]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": ends}
        offset = ends[1]
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()  # as IREE reads
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    start = file.tell()
    for name, array in arrays.items():
        first = file.tell()
        for piece in bytes_of(array):
            file.write(piece.data)
            told((file.tell() - start) / max(offset, 1))
        assert file.tell() - first == array.nbytes, name


def write_model(path: Path, arrays: Arrays, told: Told = lambda share: None) -> None:
    """Writes a file of a model; the package `transformers` asks what its tensors are made for."""
    with path.open("wb") as file:
        write_tensors(file, arrays, told, format="pt")
