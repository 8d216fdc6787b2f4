"""What jobs have in common, and how it gets to a worker: pickled once, opened once a process."""

from __future__ import annotations

import hashlib
import pickle
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jq.cache.results import versions
from jq.errors import UserError

Result = Mapping[str, np.ndarray]
OPEN = 2  # works that a process keeps open


class Work(ABC):
    """What many jobs have in common. It can be pickled; `open` is slow, and called once a worker.

    What an opened work gives for an item depends on that item alone, not on those before it.
    """

    @abstractmethod
    def open(self) -> Callable[[Any], Result]:
        """The function that does one job; never called by two threads at once."""


@dataclass(frozen=True)
class Payload:
    """A work on its way: in a file of this machine, or as bytes.

    Attributes:
        digest: SHA-256 of the bytes.
        code: the versions that made it, which have to be those of the worker.
    """

    digest: str
    code: tuple[str, ...]
    file: Path | None = None
    content: bytes = b""

    @staticmethod
    def of(work: Work, folder: Path | None = None) -> Payload:
        content = pickle.dumps(work, protocol=5)
        digest, code = hashlib.sha256(content).hexdigest(), tuple(versions())
        if folder is None:
            return Payload(digest, code, content=content)
        (file := folder / "work").write_bytes(content)
        return Payload(digest, code, file=file)

    def work(self) -> Work:
        """
        Raises:
            UserError: this worker has other versions.
        """
        here = tuple(versions())
        if self.code != here:
            raise UserError(
                "a worker has another version of jaxq, or of a library that computes",
                hint="install the same on all machines",
            )
        made: Work = pickle.loads(self.file.read_bytes() if self.file else self.content)
        return made


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
