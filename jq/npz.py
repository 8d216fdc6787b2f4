"""`.npz` files as inputs and outputs: one array per input, by its name or `arg0`, `arg1`, ..."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import ml_dtypes
import numpy as np

from jq.errors import UserError
from jq.files import written_whole


class Spec(Protocol):
    """What an input must be: `jq.ir.TensorSpec`, without importing MLIR for it."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


def read(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file. Damaged files and pickled objects are refused."""
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as members:
            names = [name.removesuffix(".npy") for name in members.namelist()]
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                return {name: np.asarray(file[name]) for name in names}
    except FileNotFoundError:
        raise UserError(f"no such file: {path}") from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = "it holds Python objects" if "allow_pickle" in str(error) else f"{error}"
        raise UserError(
            f"cannot read arrays: {reason}", location=str(path), hint="write it with np.savez"
        ) from error


def read_array(path: Path) -> np.ndarray:
    """The one array of a `.npy` file."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"no such file: {path}") from None
    except (ValueError, EOFError) as error:
        raise UserError(f"cannot read an array: {error}", location=str(path)) from error
    if not isinstance(array, np.ndarray):
        raise UserError("this is no .npy file", location=str(path), hint="write it with np.save")
    return array


def read_exact(path: Path, specs: Sequence[Spec]) -> list[np.ndarray]:
    """The arrays of one call, in the order of `specs`; types and shapes are exact."""
    arrays = _matched(read(path), specs, path)
    for spec, array in zip(specs, arrays, strict=True):
        if array.shape != tuple(spec.shape):
            raise UserError(
                f"input {spec.name!r} has shape {array.shape}, the program wants {spec.shape}",
                location=str(path),
            )
    return arrays


def read_samples(path: Path, specs: Sequence[Spec]) -> list[list[np.ndarray]]:
    """The arrays of one call per sample.

    Every array has its input's shape (one sample), or one more leading axis that counts samples.
    """
    arrays = _matched(read(path), specs, path)
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
    """Writes outputs by name; types that NumPy cannot store (bf16, fp8) become float32."""
    # Not `np.savez`: the names are its keyword arguments, where `file` is taken.
    with written_whole(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            portable = array.astype(np.float32) if array.dtype.kind == "V" else array
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(portable), allow_pickle=False)


def _matched(
    arrays: Mapping[str, np.ndarray], specs: Sequence[Spec], path: Path
) -> list[np.ndarray]:
    """One array per spec, found by name or by position (`arg0`), its type checked."""
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


def _typed(array: np.ndarray, spec: Spec, path: Path) -> np.ndarray:
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
