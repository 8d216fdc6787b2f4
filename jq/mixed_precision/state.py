"""What a search has measured so far, in a file: an interrupted search goes on from there.

The file's name is a digest of all that a measurement depends on: the model with its weights,
the data, the pipeline, the target, the versions. A file is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.base.system.cache_folder import cache_folder
from jq.base.system.files import read_text, written_whole
from jq.driver.job import Job

LOG = logging.getLogger("jq")
SCHEMA = 1
_PACKAGES = ("jaxq", "jax", "jaxlib", "numpy", "ml-dtypes", "iree-base-compiler")


def state_dir() -> Path:
    return cache_folder("search")


class State:
    """Numbers by key. A file that is damaged is as good as none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, float] = _read(path)
        self.found = len(self.values)  # from an earlier run
        self._kept = True

    def get(self, key: str) -> float | None:
        return self.values.get(key)

    def put(self, key: str, value: float) -> None:
        """Where the file cannot be written, the search goes on, and says once what is lost."""
        self.values[key] = value
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(self.path) as temporary:
                temporary.write_text(
                    json.dumps({"schema": SCHEMA, "values": self.values}), encoding="utf-8"
                )
        except (OSError, UserError) as error:
            if self._kept:
                LOG.warning("measurements are not kept for a later search: %s", error)
            self._kept = False


def _read(path: Path) -> dict[str, float]:
    try:
        data = json.loads(read_text(path))
        if data["schema"] != SCHEMA:
            return {}
        return {str(key): float(value) for key, value in data["values"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def digest_of(job: Job, calls: Iterable[Iterable[np.ndarray]]) -> str:
    """The digest of a job and of the calls that errors are measured on."""
    digest = hashlib.sha256(json.dumps(_settings(job), sort_keys=True, default=str).encode())
    digest.update(job.source.program.bytecode())
    for name, array in job.source.program.weights.items():
        digest.update(name.encode())
        _add(digest, array)
    for inputs in (*(job.data or ()), (), *calls):
        for array in inputs:
            _add(digest, array)
    return digest.hexdigest()[:32]


def _settings(job: Job) -> dict[str, Any]:
    pipeline = job.pipeline
    return {
        "versions": {name: _version(name) for name in _PACKAGES},
        "settings": pipeline.settings.model_dump(),
        "rules": [rule.model_dump() for rule in pipeline.rules],
        "passes": {level: [repr(p) for p in passes] for level, passes in pipeline.passes.items()},
        "target": job.target.model_dump(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _add(digest: Any, array: np.ndarray) -> None:
    digest.update(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
