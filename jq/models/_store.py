"""Trained weights kept in the user's cache directory."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from jq.base.system.cache_folder import cache_folder, make_private

Arrays = dict[str, np.ndarray]


def cached(key: str, make: Callable[[], Arrays], shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
    """The float32 arrays stored under `key`, made and stored when they are not there.

    A file that is damaged, or whose names or shapes are not `shapes`, counts as absent.
    A cache directory that cannot be written costs the next process the same work, no more.
    """
    path = folder() / f"{key}.npz"
    arrays = _read(path)
    if arrays is None or not _fits(arrays, shapes):
        arrays = make()
        _write(path, arrays)
    return arrays


def folder() -> Path:
    return cache_folder("models")


def _fits(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    return {name: a.shape for name, a in arrays.items()} == dict(shapes) and all(
        a.dtype == np.float32 and np.isfinite(a).all() for a in arrays.values()
    )


def _read(path: Path) -> Arrays | None:
    try:
        # Our own handle: NumPy leaves its own open when the archive is damaged.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        return None


def _write(path: Path, arrays: Arrays) -> None:
    """Writes to a temporary name and renames: readers see all of the file or none."""
    try:
        make_private(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(temporary, path)
    except OSError:
        pass  # a full disk: the weights are used, only not kept
    finally:
        Path(temporary).unlink(missing_ok=True)
