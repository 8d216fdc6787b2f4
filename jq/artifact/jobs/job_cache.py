"""Results of jobs on disk, found by a digest of all that they depend on."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.cache.modules import replaced, shrink
from jq.artifact.cache.results import bytes_of, read, versions
from jq.base.errors import UserError
from jq.base.system.cache_folder import cache_folder

LOG = logging.getLogger("jq")
LIMIT = 1 << 30  # bytes
EVERY = 64  # results that are written between two looks at how much there is: it reads the folder
_SUFFIX = ".job"


class JobCache:
    """The results of the jobs of one work.

    Args:
        work: a digest of all that a result depends on besides its item and our code.
    """

    def __init__(self, work: str, directory: Path | None = None) -> None:
        self.work = work
        self.directory = directory or cache_folder("jobs")
        self._written = 0

    def get(self, item: Any) -> Mapping[str, np.ndarray] | None:
        return read(self._path(item))

    def put(self, item: Any, result: Mapping[str, np.ndarray]) -> None:
        """A disk that is full costs a later run time, no more."""
        path = self._path(item)
        with suppress(OSError, UserError):
            replaced(path, bytes_of(path, result))
            if self._written % EVERY == 0:
                shrink(self.directory, _SUFFIX, LIMIT)
            self._written += 1

    def _path(self, item: Any) -> Path:
        digest = hashlib.sha256(json.dumps([self.work, *versions()]).encode())
        _add(digest, item)
        return self.directory / f"{digest.hexdigest()}{_SUFFIX}"


def _add(digest: Any, item: Any) -> None:
    """An item: numbers, texts, arrays, and sequences of these."""
    if isinstance(item, list | tuple):
        digest.update(f"({len(item)}".encode())
        for part in item:
            _add(digest, part)
    elif isinstance(item, np.ndarray):
        digest.update(f"{item.dtype.name}{item.shape}".encode())
        digest.update(np.ascontiguousarray(item).reshape(-1).view(np.uint8).data)
    else:
        digest.update(f"{type(item).__name__} {item!r};".encode())
