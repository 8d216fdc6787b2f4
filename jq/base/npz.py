"""`.npz` files as inputs and outputs: one array per input, by its name or `arg0`, `arg1`, ..."""

import io
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

import ml_dtypes
import numpy as np

from jq.base.errors import UserError
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
    *(zipfile.BadZipFile, zlib.error, OSError),
    tokenize.TokenError,  # NumPy reads headers as Python does
)
# What the arrays of a file may take in memory: so many times its size, and so much besides.
_TIMES, _BESIDES = 4, 256 << 20
_HEADER = 1 << 16  # bytes; NumPy refuses more than 10,000, but reads them first
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others take memory for what they claim
_LONGEST_NAME = (1 << 16) - 5  # bytes, with .npy after it


def read(
    path: Path, specs: Sequence[Spec] | None = None, *, headers_alone: bool = False
) -> dict[str, np.ndarray]:
    """All arrays of a file; none, after the same checks, where `headers_alone` are read. Damaged
    files and pickled objects are refused, and arrays that do not fit `specs` or are far larger than
    the file, before they are read."""
    size = check_input(path)
    with _refusing(path, "np.savez"), zipfile.ZipFile(path) as archive:
        members = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise ValueError("a name occurs twice")
        described = {}
        for name, member in members.items():
            if not member.filename.endswith(".npy") or member.compress_type not in _KINDS:
                raise ValueError(f"{member.filename!r:.80} is no array as NumPy writes it")
            with archive.open(member) as stream:
                described[name] = _described(stream)
        _check_size(described.values(), size)
        if specs is not None:
            _matched(described, specs, path)
        arrays = {}
        for name, member in () if headers_alone else members.items():
            with archive.open(member) as stream:
                arrays[name] = _array(stream)
        return arrays


def read_array(path: Path) -> np.ndarray:
    """The one array of a `.npy` file."""
    size = check_input(path)
    with _refusing(path, "np.save"), path.open("rb") as stream:
        _check_size([_described(stream)], size)
        stream.seek(0)
        return _array(stream)


@contextmanager
def _refusing(path: Path, writer: str) -> Iterator[None]:
    """Whatever is wrong with the file becomes a `UserError` of one line."""
    try:
        yield
    except UserError:
        raise
    except _UNREADABLE as error:
        reason = f"{error}".partition("\n")[0] or type(error).__name__
        hint = f"write it with {writer}"
        raise _refused(path, f"cannot read arrays: {reason:.200}", hint) from error


def _refused(path: Path, reason: str, hint: str | None = None) -> UserError:
    return UserError(reason, location=str(path), hint=hint)


def _described(stream: IO[bytes]) -> np.ndarray:
    """An array of zeros that takes no memory, with the type and shape that a header claims."""
    header = io.BytesIO(stream.read(_HEADER))
    version = np.lib.format.read_magic(header)
    if version not in _READERS:
        raise ValueError(f"arrays of version {version}")
    shape, _, dtype = _READERS[version](header)
    if dtype.hasobject or not dtype.itemsize:  # NumPy makes larger elements of those without size
        raise ValueError("it holds Python objects, or elements of no size")
    return np.broadcast_to(np.zeros((), dtype), shape)


_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _check_size(arrays: Iterable[np.ndarray], size: int) -> None:
    if (claimed := sum(array.nbytes for array in arrays)) > _TIMES * size + _BESIDES:
        raise ValueError(f"it claims {claimed} bytes of arrays in a file of {size}")


def _array(stream: IO[bytes]) -> np.ndarray:
    array = np.lib.format.read_array(stream)
    if stream.read(1):
        raise ValueError(f"there is more than an array of {array.nbytes} bytes")
    return array


def read_exact(path: Path, specs: Sequence[Spec]) -> list[np.ndarray]:
    """The arrays of one call, in the order of `specs`; types and shapes are exact."""
    arrays = _matched(read(path, specs), specs, path)
    for spec, array in zip(specs, arrays, strict=True):
        if array.ndim > len(spec.shape):
            raise _misshapen(array, spec, path)
    return arrays


def read_any(path: Path, several: Sequence[Sequence[Spec]]) -> list[np.ndarray]:
    """The arrays of one call of a program that takes inputs of several shapes."""
    for specs in several[1:]:
        with suppress(UserError):
            return read_exact(path, specs)
    return read_exact(path, several[0])


def read_samples(path: Path, specs: Sequence[Spec]) -> list[list[np.ndarray]]:
    """The arrays of one call per sample.

    Every array has its input's shape (one sample), or one more leading axis that counts samples."""
    arrays = _matched(read(path, specs), specs, path)
    counts = {
        spec.name: len(array) if array.ndim > len(spec.shape) else 0
        for spec, array in zip(specs, arrays, strict=True)
    }
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name}: {count or 'no sample axis'}" for name, count in counts.items())
        raise _refused(path, f"inputs differ in their number of samples ({told})")
    if not any(counts.values()):
        return [arrays]
    return [list(sample) for sample in zip(*arrays, strict=True)]


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes outputs by name; types that NumPy cannot store (bf16, fp8) become float32.

    Raises:
        UserError: it cannot be written, or a name is none that a file can hold."""
    for name in arrays:
        content = name.encode(errors="replace")  # a half of a character becomes another
        if content.decode() != name or b"\0" in content or len(content) > _LONGEST_NAME:
            hint = "rename the model's output"
            raise UserError(f"no array can be called {name!r:.80}", hint=hint)
    # Not `np.savez`: the names are its keyword arguments, where `file` is taken.
    with written_whole(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            portable = array.astype(np.float32) if array.dtype.kind == "V" else array
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(portable), allow_pickle=False)


def _matched(
    arrays: Mapping[str, np.ndarray], specs: Sequence[Spec], path: Path
) -> list[np.ndarray]:
    """One array per spec, found by name or by position (`arg0`), its type checked, and its shape
    but for one leading axis."""
    left, found = dict(arrays), []
    for index, spec in enumerate(specs):
        name = spec.name if spec.name in left else f"arg{index}"
        if name not in left:
            other = "" if name == spec.name else f" (or {name})"
            hint = f"the file holds {', '.join(arrays) or 'nothing'}"
            raise _refused(path, f"no array {spec.name!r}{other}", hint)
        found.append(_typed(left.pop(name), spec, path))
    if left:
        hint = f"its inputs are {', '.join(spec.name for spec in specs)}"
        raise _refused(path, f"the model has no input {', '.join(map(repr, left))}", hint)
    return found


def _typed(array: np.ndarray, spec: Spec, path: Path) -> np.ndarray:
    samples = array.shape[:1] if array.ndim > len(spec.shape) else ()
    if array.shape != (*samples, *spec.shape) or samples == (0,):
        raise _misshapen(array, spec, path)
    dtype: np.dtype = np.dtype(getattr(ml_dtypes, spec.dtype, spec.dtype))
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)  # how np.savez stores bf16 and fp8: raw bytes
    if array.dtype != dtype:
        reason = f"input {spec.name!r} is {array.dtype}, the model wants {spec.dtype}"
        raise _refused(path, reason, f"convert it with .astype({spec.dtype!r})")
    return array


def _misshapen(array: np.ndarray, spec: Spec, path: Path) -> UserError:
    wants = f"the model wants {spec.shape}"
    return _refused(path, f"input {spec.name!r} has shape {array.shape}, {wants}")
