"""The common part of jobs, and its way to a worker: pickled once, opened once a process."""

import hashlib
import io
import pickle
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jq.artifact.keys import versions
from jq.base.errors import UserError

Result = Mapping[str, np.ndarray]
OPEN = 2  # works that a process keeps open


class Work(ABC):
    """The common part of many jobs. It can be pickled; `open` is slow, and called once a worker.

    What an opened work gives for an item depends on that item alone, not on those before it."""

    @abstractmethod
    def open(self) -> Callable[[Any], Result]:
        """The function that does one job; never called by two threads at once."""


@dataclass(frozen=True)
class Payload:
    """A work on its way: in a file of this machine, or as bytes.

    Attributes:
        digest: SHA-256 of the bytes.
        code: the versions that made it, which have to be those of the worker."""

    digest: str
    code: tuple[str, ...]
    file: Path | None = None
    content: bytes = b""

    @staticmethod
    def of(work: Work, folder: Path | None = None) -> "Payload":
        code = tuple(versions())
        if folder is None:
            content = io.BytesIO()
            return Payload(work_digest(work, content), code, content=content.getvalue())
        with (file := folder / "work").open("wb") as out:
            return Payload(work_digest(work, out), code, file=file)

    def work(self) -> Work:
        """
        Raises:
            UserError: this worker has other versions."""
        here = tuple(versions())
        if self.code != here:
            what = "a worker has another version of jaxq, or of a library that computes"
            raise UserError(what, hint="install the same on all machines")
        return pickle.loads(self.file.read_bytes() if self.file else self.content)


def work_digest(work: Work, out: BinaryIO | None = None) -> str:
    """SHA-256 of all that a work is made of, which is written as it is pickled: it may be large."""
    pickle.Pickler(hashed := _Hashed(out), protocol=5).dump(work)
    return hashed.digest.hexdigest()


class _Hashed:
    """A file that knows the digest of what was written, or just the digest."""

    def __init__(self, out: BinaryIO | None) -> None:
        self.digest, self.out = hashlib.sha256(), out

    def write(self, content: Any) -> None:
        """Bytes, or the buffer of an array."""
        self.digest.update(content)
        if self.out is not None:
            self.out.write(content)


_opened: OrderedDict[str, tuple[threading.Lock, Callable[[Any], Result]]] = OrderedDict()
_lock = threading.Lock()


def run_job(payload: Payload, number: int, item: Any) -> tuple[int, Result]:
    """Does one job in the process of a worker: its number and result."""
    with _lock:
        if payload.digest not in _opened:
            _opened[payload.digest] = threading.Lock(), payload.work().open()
        _opened.move_to_end(payload.digest)
        while len(_opened) > OPEN:
            _opened.popitem(last=False)
        own, call = _opened[payload.digest]
    with own:
        return number, call(item)
