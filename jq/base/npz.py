"""`.npz` files as inputs and outputs: one array per input, by its name or `arg0`, `arg1`, ..."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from jq.base.errors import UserError
from jq.base.npy import bytes_of, data, header_of, member_header, member_of
from jq.base.system.files import check_input, written_whole


class Spec(Protocol):
    """The specification of an input: `jq.ir.TensorSpec`, without importing MLIR for it."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


_UNREADABLE = (
    *(ValueError, EOFError, KeyError, TypeError, SyntaxError, OverflowError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RecursionError, OSError),
    tokenize.TokenError,  # NumPy reads headers as Python does
)
# What the arrays of a file may take in memory: so many times its size, and so much besides.
_TIMES, _BESIDES = 4, 256 << 20
_LONGEST_NAME = (1 << 16) - 5  # bytes, with .npy after it


def read(path: Path, specs: Sequence[Spec] | None = None) -> dict[str, np.ndarray]:
    """All arrays of a file. Damaged files and pickled objects are refused, and arrays that do not
    fit `specs` or are far larger than the file, before they are read."""
    size = check_input(path)
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as members:
            headers = {m: member_header(members, m) for m in members.infolist()}
            arrays = {m.filename.removesuffix(".npy"): h for m, h in headers.items()}
            if len(arrays) < len(headers):
                raise ValueError("a name occurs twice")
            _check_size(sum(map(bytes_of, headers.values())), size)
            if specs is not None:
                _matched({n: _Claim(s, d) for n, (s, _, d) in arrays.items()}, specs, path)
            return {m.filename.removesuffix(".npy"): member_of(members, m) for m in headers}
    except _UNREADABLE as error:
        raise _unreadable(error, path, "np.savez") from error


def read_array(path: Path) -> np.ndarray:
    """The one array of a `.npy` file."""
    size = check_input(path)
    try:
        with path.open("rb") as stream:
            header = header_of(stream)
            _check_size(bytes_of(header), size)
            return data(stream, header)
    except _UNREADABLE as error:
        raise _unreadable(error, path, "np.save") from error


def _unreadable(error: Exception, path: Path, writer: str) -> UserError:
    if isinstance(error, UserError):
        return error
    reason = f"{error}".partition("\n")[0] or type(error).__name__
    hint = f"write it with {writer}"
    return UserError(f"cannot read arrays: {reason:.200}", location=str(path), hint=hint)


def _check_size(claimed: int, size: int) -> None:
    if claimed > _TIMES * size + _BESIDES:
        raise ValueError(f"it claims {claimed} bytes of arrays in a file of {size}")


@dataclass(frozen=True)
class _Claim:
    """An array as its header describes it, to be judged as the array would be."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def view(self, dtype: np.dtype[Any]) -> _Claim:
        return _Claim(self.shape, dtype)


def read_exact(path: Path, specs: Sequence[Spec]) -> list[np.ndarray]:
    """The arrays of one call, in the order of `specs`; types and shapes are exact."""
    arrays = _matched(read(path, specs), specs, path)
    for spec, array in zip(specs, arrays, strict=True):
        if array.shape != tuple(spec.shape):
            raise UserError(
                f"input {spec.name!r} has shape {array.shape}, the program wants {spec.shape}",
                location=str(path),
            )
    return arrays


def read_any(path: Path, several: Sequence[Sequence[Spec]]) -> list[np.ndarray]:
    """The arrays of one call of a program that takes inputs of several shapes."""
    for specs in several[1:]:
        with suppress(UserError):
            return read_exact(path, specs)
    return read_exact(path, several[0])


def read_samples(path: Path, specs: Sequence[Spec]) -> list[list[np.ndarray]]:
    """The arrays of one call per sample.

    Every array has its input's shape (one sample), or one more leading axis that counts samples.
    """
    arrays = _matched(read(path, specs), specs, path)
    counts: dict[str, int] = {}
    for spec, array in zip(specs, arrays, strict=True):
        if array.shape == tuple(spec.shape):
            counts[spec.name] = 0
        elif array.shape[1:] == tuple(spec.shape) and len(array):
            counts[spec.name] = len(array)
        else:
            raise UserError(
                f"input {spec.name!r} has shape {array.shape}, "
                f"the model wants {spec.shape} or samples of it, [n, ...]",
                location=str(path),
            )
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name}: {count or 'no sample axis'}" for name, count in counts.items())
        raise UserError(f"inputs differ in their number of samples ({told})", location=str(path))
    if not any(counts.values()):
        return [arrays]
    return [list(sample) for sample in zip(*arrays, strict=True)]


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes outputs by name; types that NumPy cannot store (bf16, fp8) become float32.

    Raises:
        UserError: it cannot be written, or a name is none that a file can hold.
    """
    for name in arrays:
        _check_name(name)
    # Not `np.savez`: the names are its keyword arguments, where `file` is taken.
    with written_whole(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            portable = array.astype(np.float32) if array.dtype.kind == "V" else array
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(portable), allow_pickle=False)


def _check_name(name: str) -> None:
    """Refuses what names no member of an archive: not UTF-8, cut off at a null, or too long."""
    try:
        sound = "\0" not in name and len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        sound = False
    if not sound:
        raise UserError(f"no array can be called {name!r:.80}", hint="rename the model's output")


def _matched(arrays: Mapping[str, Any], specs: Sequence[Spec], path: Path) -> list[Any]:
    """One array per spec, found by name or by position (`arg0`), its type checked, and its shape
    but for one leading axis."""
    left, found = dict(arrays), []
    for index, spec in enumerate(specs):
        name = spec.name if spec.name in left else f"arg{index}"
        if name not in left:
            other = "" if name == spec.name else f" (or {name})"
            raise UserError(
                f"no array {spec.name!r}{other}",
                location=str(path),
                hint=f"the file holds {', '.join(arrays) or 'nothing'}",
            )
        found.append(_typed(left.pop(name), spec, path))
    if left:
        wanted = ", ".join(spec.name for spec in specs)
        raise UserError(
            f"the model has no input {', '.join(map(repr, left))}",
            location=str(path),
            hint=f"its inputs are {wanted}",
        )
    return found


def _typed(array: Any, spec: Spec, path: Path) -> Any:
    wanted = tuple(spec.shape)
    if wanted not in (tuple(array.shape), tuple(array.shape[1:])):
        raise UserError(
            f"input {spec.name!r} has shape {array.shape}, the model wants {spec.shape}",
            location=str(path),
        )
    dtype: np.dtype = np.dtype(getattr(ml_dtypes, spec.dtype, spec.dtype))
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)  # how np.savez stores bf16 and fp8: raw bytes
    if array.dtype != dtype:
        raise UserError(
            f"input {spec.name!r} is {array.dtype}, the model wants {spec.dtype}",
            location=str(path),
            hint=f"convert it with .astype({spec.dtype!r})",
        )
    return array
