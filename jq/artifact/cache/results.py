"""Results of long passes, kept between runs in the user's cache directory.

An entry, arrays by name, is found by a digest of everything that it depends on: the program with
its weights, the calibration data, what is asked for, the code of this package and the versions of
the libraries that compute. Entries that were not used for longest go first.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from jq.artifact.cache.modules import replaced, shrink
from jq.base.errors import UserError
from jq.base.system.cache_folder import cache_folder
from jq.base.system.files import read_input
from jq.ir import Program

LOG = logging.getLogger("jq")
LIMIT = 1 << 30  # bytes
_SUFFIX = ".results"
_LIBRARIES = ("jax", "jaxlib", "ml_dtypes", "numpy", "scipy")
Arrays = Mapping[str, np.ndarray]


class Results:
    """The entries of one set of calibration data."""

    def __init__(
        self,
        data: Sequence[Sequence[np.ndarray]] | None,
        directory: Path | None = None,
        limit: int = LIMIT,
    ) -> None:
        self.data, self.limit = data, limit
        self.directory = directory or cache_folder("results")

    def of(self, program: Program, what: str, make: Callable[[], Arrays]) -> Arrays:
        """The result of `make`, from this run or an earlier one.

        Args:
            program: as it is before `make` runs.
            what: the pass with all its settings.
        """
        path = self.directory / f"{self.key(program, what)}{_SUFFIX}"
        if (found := read(path)) is not None:
            LOG.info("%s: taken from an earlier run", what.partition("(")[0])
            return found
        made = make()
        with suppress(OSError):
            replaced(path, bytes_of(path, made))
            shrink(self.directory, _SUFFIX, self.limit)
        return made

    def key(self, program: Program, what: str) -> str:
        digest = hashlib.sha256(json.dumps([what, self._data, versions()]).encode())
        digest.update(program.text(whole=True).encode())  # no matter from where it was traced
        for name, array in program.weights.items():
            _add(digest, name, np.asarray(array))
        return digest.hexdigest()

    @cached_property
    def _data(self) -> str:
        digest = hashlib.sha256()
        for i, inputs in enumerate(self.data or ()):
            for array in inputs:
                _add(digest, str(i), np.asarray(array))
        return digest.hexdigest()


@cache
def versions() -> list[str]:
    """The versions of the libraries, and a digest of our own code."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parents[2].rglob("*.py")):
        code.update(path.read_bytes())
    return [*(version(name) for name in _LIBRARIES), code.hexdigest()]


def _add(digest: hashlib._Hash, name: str, array: np.ndarray) -> None:
    digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


# One line of JSON (names, types, shapes and a checksum), then the arrays.


def bytes_of(path: Path, arrays: Arrays) -> bytes:
    body = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())
    fields = [[name, a.dtype.name, a.shape] for name, a in arrays.items()]
    head = {"arrays": fields, "sha256": _checksum(path, fields, body)}
    return json.dumps(head).encode() + b"\n" + body


def read(path: Path) -> dict[str, np.ndarray] | None:
    """None when there is no such entry, or it is damaged."""
    try:
        line, _, body = read_input(path).partition(b"\n")
        head = json.loads(line)
        if _checksum(path, head["arrays"], body) != head["sha256"]:
            return None
        os.utime(path)  # used now
        found, start = {}, 0
        for name, kind, shape in head["arrays"]:
            dtype, count = np.dtype(getattr(ml_dtypes, kind, kind)), int(np.prod(shape))
            found[name] = np.frombuffer(body, dtype, count, start).reshape(shape).copy()
            start += count * dtype.itemsize
        return found
    except (OSError, ValueError, KeyError, TypeError, RecursionError, UserError):
        return None


def _checksum(path: Path, fields: Any, body: bytes) -> str:
    """Covers the entry's name, too: one under another's name is not believed."""
    digest = hashlib.sha256(json.dumps([path.name, fields]).encode() + b"\0")
    digest.update(body)
    return digest.hexdigest()


__all__ = ["Results", "bytes_of", "read", "versions"]
