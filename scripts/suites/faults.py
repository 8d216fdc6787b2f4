"""Fails one call of the operating system after another, of a piece of work that writes files.

A fault is at a `point`: a file opened to be written, what is written to it, a name that changes, a
folder or temporary file made, a disk waited for, a mapping, a process started. The n-th point of a
run fails in a `way`: as on a full disk, without memory, or by the end of the process.
"""

from __future__ import annotations

import builtins
import errno
import io
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# Processes are copies of one that has imported and computed nothing: XLA has threads, which hold
# locks that a copy of a process that has computed waits for.
_CLEAN = multiprocessing.get_context("forkserver")
WAYS = ("full", "memory", "killed")
KILLED = 77  # exit code
_EVENTS: tuple[str, ...] = ("os.rename", "os.mkdir", "os.chmod", "mmap.__new__", "subprocess.Popen")
_EVENTS += ("tempfile.mkstemp", "tempfile.mkdtemp")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass
class _Run:
    """Points passed so far, and the number of that which fails."""

    fails: int | None = None
    way: str = "full"
    points: list[str] = field(default_factory=list)

    def point(self, name: str) -> bool:
        """True where the data written there are lost; other faults are raised."""
        self.points.append(name)
        if len(self.points) - 1 != self.fails:
            return False
        if self.way == "killed":
            os._exit(KILLED)
        if self.way == "memory":
            raise MemoryError
        if name == "write":
            return True
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


_run: _Run | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Hook for the events that Python raises before it asks the system."""
    if _run is None:
        return
    if event == "open":
        path, _, flags = arguments
        if "__pycache__" not in str(path) and (flags or 0) & _WRITES and not isinstance(path, int):
            _run.point("open")
    elif event in _EVENTS and "__pycache__" not in str(arguments[0]):
        _run.point(event)


sys.addaudithook(_audit)


@contextmanager
def _watched(run: _Run) -> Iterator[None]:
    global _run
    opens, syncs = io.open, os.fsync

    def opened(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        found = opens(file, mode, *rest, **named)
        if _run is None or not set(mode) & set("wax+"):
            return found
        try:
            lost = _run.point("write")
        except BaseException:
            found.close()
            raise
        if not lost:
            return found
        found.close()
        return opens("/dev/full", mode.replace("x", "w"), *rest, **named)

    def synced(handle: Any) -> None:
        if _run is not None:
            _run.point("fsync")
        syncs(handle)

    io.open = builtins.open = opened
    os.fsync, _run = synced, run  # type: ignore[assignment]
    try:
        yield
    finally:
        _run = None
        io.open = builtins.open = opens
        os.fsync = syncs


def points_of(work: Callable[[], object]) -> list[str]:
    """The points of a run in which nothing fails."""
    run = _Run()
    with _watched(run):
        work()
    return run.points


def fault(work: Callable[[], object], at: int, way: str) -> BaseException | None:
    """Runs `work` with a fault at a point; what it raised. A process that is to end is a copy of
    this one: where this one has computed with XLA, use `ended`."""
    if way == "killed":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX: of threads, which this copy does not use
            child = os.fork()
        if child == 0:
            with _watched(_Run(at, way)):
                work()
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return None if code == 0 else SystemExit(code)
    try:
        with _watched(_Run(at, way)):
            work()
    except (Exception, SystemExit) as error:
        return error
    return None


def ended(work: Callable[[], object], at: int, imported: list[str], limit: float) -> BaseException:
    """Runs `work` in another process, which ends at a point; how it ended.

    Args:
        work: a function of a module, with what it is given: the other process has nothing else.
        imported: modules that the first process imports, once for all.
        limit: seconds.
    """
    _CLEAN.set_forkserver_preload(imported)
    process = _CLEAN.Process(target=_end, args=(work, at))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        return TimeoutError(f"did not end in {limit:.0f} s")
    code = process.exitcode
    if code not in (0, KILLED):
        return ChildProcessError(f"exit code {code}")
    return SystemExit(code)


def _end(work: Callable[[], object], at: int) -> None:
    with _watched(_Run(at, "killed")):
        work()
