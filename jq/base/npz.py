"""`.npz` files as inputs and outputs: one array per input, by its name or `arg0`, `arg1`, ..."""

import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

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
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RecursionError, OSError),
    tokenize.TokenError,  # NumPy reads headers as Python does
)
# What the arrays of a file may take in memory: so many times its size, and so much besides.
_TIMES, _BESIDES = 4, 256 << 20
_LONGEST_NAME = (1 << 16) - 5  # bytes, with .npy after it


def read(
    path: Path, specs: Sequence[Spec] | None = None, *, headers_alone: bool = False
) -> dict[str, np.ndarray]:
    """All arrays of a file; none, after the same checks, where `headers_alone` are read. Damaged
    files and pickled objects are refused, and arrays that do not fit `specs` or are far larger than
    the file, before they are read."""
    size = check_input(path)
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as members:
            headers = {m: _member_header(members, m) for m in members.infolist()}
            arrays = {m.filename.removesuffix(".npy"): h for m, h in headers.items()}
            if len(arrays) < len(headers):
                raise ValueError("a name occurs twice")
            _check_size(sum(map(_bytes_of, headers.values())), size)
            if specs is not None:
                described = {
                    n: np.broadcast_to(np.zeros((), d), s) for n, (s, _, d) in arrays.items()
                }
                _matched(described, specs, path)
            wanted = () if headers_alone else headers
            return {m.filename.removesuffix(".npy"): _member_of(members, m) for m in wanted}
    except _UNREADABLE as error:
        raise _unreadable(error, path, "np.savez") from error


def read_array(path: Path) -> np.ndarray:
    """The one array of a `.npy` file."""
    size = check_input(path)
    try:
        with path.open("rb") as stream:
            header = _header_of(stream)
            _check_size(_bytes_of(header), size)
            return _data(stream, header)
    except _UNREADABLE as error:
        raise _unreadable(error, path, "np.save") from error


def _unreadable(error: Exception, path: Path, writer: str) -> UserError:
    if isinstance(error, UserError):
        return error
    reason = f"{error}".partition("\n")[0] or type(error).__name__
    return _refused(path, f"cannot read arrays: {reason:.200}", f"write it with {writer}")


def _refused(path: Path, reason: str, hint: str | None = None) -> UserError:
    return UserError(reason, location=str(path), hint=hint)


def _check_size(claimed: int, size: int) -> None:
    if claimed > _TIMES * size + _BESIDES:
        raise ValueError(f"it claims {claimed} bytes of arrays in a file of {size}")


def read_exact(path: Path, specs: Sequence[Spec]) -> list[np.ndarray]:
    """The arrays of one call, in the order of `specs`; types and shapes are exact."""
    arrays = _matched(read(path, specs), specs, path)
    for spec, array in zip(specs, arrays, strict=True):
        if array.shape != tuple(spec.shape):
            wants = f"the program wants {spec.shape}"
            raise _refused(path, f"input {spec.name!r} has shape {array.shape}, {wants}")
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
    counts: dict[str, int] = {}
    for spec, array in zip(specs, arrays, strict=True):
        if array.shape == tuple(spec.shape):
            counts[spec.name] = 0
        elif array.shape[1:] == tuple(spec.shape) and len(array):
            counts[spec.name] = len(array)
        else:
            wants = f"the model wants {spec.shape} or samples of it, [n, ...]"
            raise _refused(path, f"input {spec.name!r} has shape {array.shape}, {wants}")
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


def _matched(arrays: Mapping[str, Any], specs: Sequence[Spec], path: Path) -> list[Any]:
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


def _typed(array: Any, spec: Spec, path: Path) -> Any:
    wanted = tuple(spec.shape)
    if wanted not in (tuple(array.shape), tuple(array.shape[1:])):
        wants = f"the model wants {spec.shape}"
        raise _refused(path, f"input {spec.name!r} has shape {array.shape}, {wants}")
    dtype: np.dtype = np.dtype(getattr(ml_dtypes, spec.dtype, spec.dtype))
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)  # how np.savez stores bf16 and fp8: raw bytes
    if array.dtype != dtype:
        reason = f"input {spec.name!r} is {array.dtype}, the model wants {spec.dtype}"
        raise _refused(path, reason, f"convert it with .astype({spec.dtype!r})")
    return array


# The form of one array in the file: a header of text, then its bytes.
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_PIECE = 1 << 20  # bytes that are read at once
_LONGEST = 1 << 16  # bytes of a header; NumPy refuses more than 10,000
Header = tuple[tuple[int, ...], bool, "np.dtype[Any]"]  # shape, whether axes are reversed, type


def _member_header(members: zipfile.ZipFile, member: zipfile.ZipInfo) -> Header:
    if not member.filename.endswith(".npy"):
        raise ValueError(f"{member.filename!r:.80} is no array")
    if member.flag_bits & 1:
        raise ValueError("it is encrypted")
    if member.compress_type not in _KINDS:
        raise ValueError(f"{member.filename!r:.80} is compressed in an unknown way")
    with members.open(member) as stream:
        return _header_of(stream)


def _member_of(members: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with members.open(member) as stream:
        return _data(stream, _header_of(stream))


def _header_of(stream: IO[bytes]) -> Header:
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


def _bytes_of(header: Header) -> int:
    return math.prod(header[0]) * header[2].itemsize


def _data(stream: IO[bytes], header: Header) -> np.ndarray:
    shape, reversed_axes, dtype = header
    size = _bytes_of(header)
    content, filled = bytearray(size), 0
    with memoryview(content) as view:  # piece by piece, so that nothing is there twice
        while count := stream.readinto(view[filled : filled + _PIECE]):  # type: ignore[attr-defined]
            filled += count
    if filled != size or stream.read(1):
        raise ValueError(f"an array of {size} bytes has {'more' if filled == size else 'less'}")
    array = np.frombuffer(content, dtype) if size else np.empty(shape, dtype)
    return array.reshape(shape[::-1]).T if reversed_axes else array.reshape(shape)
