"""The one store of what is kept between runs, in the user's cache directory.

An entry is found by a digest of all that it depends on: the code of this package, the packages that
compute, the processor, and the inputs. It is a file of arrays by name, or a folder (the programs of
a language model). Once all together exceed `LIMIT`, those not used for longest go."""

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from jq.artifact.keys import digest, versions
from jq.base.errors import UserError
from jq.base.system.files import read_input, sha256
from jq.base.system.folders import cache_folder, make_private
from jq.base.system.processor import this_processor

LIMIT = 24 << 30  # bytes of all entries
ABANDONED = 3600.0  # seconds after which nobody writes an entry any more
KINDS = {
    "module": "modules that IREE compiled",
    "recovery": "results of calibration and of recovery passes",
    "job": "results of jobs",
    "search": "measurements of searches",
    "language": "programs and packed weights of language models",
    "model": "weights of built-in models",
    "file": "digests of model files",
}
_NAME = re.compile(f"({'|'.join(KINDS)})-[0-9a-f]{{64}}")
_UNFINISHED = ".part"
_PART = 64  # the folder is looked at again when this part of the limit was written
_unseen: dict[Path, int] = {}  # bytes written by this process since it looked
Arrays = Mapping[str, np.ndarray]


class Cache:
    """The entries of one kind, with what they all depend on besides their inputs.

    Args:
        kind: one of `KINDS`.
        context: anything that `digest` takes; it is looked at when the first entry is.
        root: a folder instead of the one in the user's cache directory."""

    def __init__(
        self, kind: str, context: Any = None, root: Path | None = None, limit: int = LIMIT
    ) -> None:
        assert kind in KINDS
        self.kind, self._given = kind, context
        self.root, self.limit = root or cache_folder("store"), limit

    @cached_property
    def _context(self) -> str:
        here = this_processor()
        return digest(versions(), here.machine, here.model, here.flags, self._given)

    def path(self, inputs: Any) -> Path:
        """The place of an entry, which is not made."""
        return self.root / f"{self.kind}-{digest(self._context, inputs)}"

    def get(self, inputs: Any) -> dict[str, np.ndarray] | None:
        """An entry's arrays; None where there is none, or it is damaged."""
        path = self.path(inputs)
        found = read(path, path.name)
        if found is not None:
            with suppress(OSError):
                os.utime(path)  # used now
        return found

    def put(self, inputs: Any, arrays: Arrays) -> None:
        """Keeps an entry. Where nothing can be written, a later run takes longer, no more."""
        path = self.path(inputs)
        content = packed(path.name, arrays)
        with suppress(OSError):
            make_private(self.root)
            _replace(path, content)
            left = _unseen.get(self.root, self.limit) + len(content)
            _unseen[self.root] = left
            if left > self.limit // _PART:
                shrink(self.root, self.limit)

    def of(self, inputs: Any, make: Callable[[], Arrays]) -> Arrays:
        """The result of `make`, or of an earlier run."""
        if (found := self.get(inputs)) is not None:
            return found
        made = make()
        self.put(inputs, made)
        return made


class Timer:
    """Seconds of work since `restart`; what an earlier run has left counts as it took then."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.seconds, self._since = 0.0, time.monotonic()

    def of(self, store: Cache, inputs: Any, make: Callable[[], Arrays]) -> Arrays:
        """The result of `make`, or of an earlier run."""

        def timed() -> Arrays:
            made = make()
            return {**made, "seconds": np.array(time.monotonic() - self._since)}

        found = dict(store.of(inputs, timed))
        self.seconds, self._since = self.seconds + float(found.pop("seconds")), time.monotonic()
        return found


def _replace(path: Path, content: bytes) -> None:
    """Writes an entry wholly or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=_UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


# The form of an entry: one line of JSON (names, types, shapes and a checksum), then the arrays.


def packed(name: str, arrays: Arrays) -> bytes:
    """The bytes of an entry of this name."""
    body = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())
    fields = [[key, a.dtype.name, list(a.shape)] for key, a in arrays.items()]
    return (
        json.dumps({"arrays": fields, "sha256": digest(name, fields, body)}).encode() + b"\n" + body
    )


def read(path: Path, name: str) -> dict[str, np.ndarray] | None:
    """The arrays of an entry; None where it is damaged, or was written under another name."""
    try:
        line, _, body = read_input(path).partition(b"\n")
        head = json.loads(line)
        if digest(name, head["arrays"], body) != head["sha256"]:
            return None
        found, start = {}, 0
        for key, kind, shape in head["arrays"]:
            dtype, count = np.dtype(getattr(ml_dtypes, kind, kind)), int(np.prod(shape))
            found[key] = np.frombuffer(body, dtype, count, start).reshape(shape).copy()
            start += count * dtype.itemsize
        return found
    except (OSError, ValueError, KeyError, TypeError, RecursionError, UserError):
        return None


@dataclass(frozen=True, order=True)
class Entry:
    """`used` is the time of the last use, in seconds."""

    used: float
    path: Path
    kind: str
    bytes: int


def entries(root: Path | None = None) -> Iterator[Entry]:
    """All entries of a store, and nothing else that lies there."""
    with suppress(OSError):
        for path in (root or cache_folder("store")).iterdir():
            if match := _NAME.fullmatch(path.name):
                with suppress(OSError):  # another process may remove it, too
                    files = path.iterdir() if path.is_dir() else [path]
                    size = sum(f.lstat().st_size for f in files)
                    yield Entry(path.lstat().st_mtime, path, match[1], size)


def remove(entry: Entry) -> None:
    if entry.path.is_dir() and not entry.path.is_symlink():
        shutil.rmtree(entry.path, ignore_errors=True)
    else:
        with suppress(OSError):
            entry.path.unlink()


def shrink(root: Path, limit: int = LIMIT, spared: Path | None = None) -> None:
    """Removes entries, the longest unused first and never `spared`, until all together fit into
    `limit` bytes, and what a process that was killed left half written."""
    for path in root.glob(f"*{_UNFINISHED}"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()
    found = sorted(entries(root))
    excess = sum(entry.bytes for entry in found) - limit
    for entry in found:
        if excess <= 0:
            break
        if entry.path != spared:
            remove(entry)
            excess -= entry.bytes
    _unseen[root] = 0


# Digests of large files, read as a whole only when somebody wrote to them.
_TICK = 2.0  # seconds, of the coarsest clock that a file system tells the time of a change by


def file_digest(files: Sequence[Path], root: Path | None = None) -> str:
    """SHA-256 of the names and contents of files, which are kept for as long as the system says
    that nobody has written to them: the time of a file's last change (`ctime`) can not be set, as
    its other times can. One that changed a moment ago may change again within the same tick.

    Raises:
        UserError: one cannot be read."""
    try:
        stats = [file.stat() for file in files]
        facts = [[s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for s in stats]
        known = Cache("file", root=root)
        key = [[str(file.resolve()) for file in files], facts]
        if (found := known.get(key)) is not None:
            return bytes(found["sha256"]).decode()
        made = digest([(file.name, sha256(file)) for file in files])
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", location=str(files[0])) from error
    if time.time() - max((s.st_ctime for s in stats), default=0) > _TICK:
        known.put(key, {"sha256": np.frombuffer(made.encode(), np.uint8)})
    return made
