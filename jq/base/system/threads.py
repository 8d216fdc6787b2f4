"""Threads: of a forked child, as the operating system schedules them, and those of BLAS."""

import atexit
import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any


# A forked child that holds objects with threads, which only its parent has, ends none the less.
#
# To release such an object waits for its threads: when Python clears its modules, or in the
# destructors of libraries, which run after that.
def never_released(objects: Iterable[Any]) -> None:
    """Keeps these objects, in a child right after the fork, until the process is gone, and at its
    end those of all modules (compilers have pools of threads there), and ends without the
    destructors of libraries. The exit code, and what the child registered with `atexit`, stay."""
    _keep(objects)
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):  # glibc: its handlers are given the exit code
        library.on_exit(library._exit, None)
    atexit.register(_silent)
    atexit.register(lambda: _keep(v for m in list(sys.modules.values()) for v in vars(m).values()))


def _keep(objects: Iterable[Any]) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(list(objects)))


def _silent() -> None:
    """Bindings report each object that is kept, on the standard error, after all else."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


# The operating system's scheduling of the calling thread.
@contextmanager
def patient() -> Iterator[None]:
    """Within it, a thread that wakes this one goes on, and this one waits for a free processor.

    By default Linux may let a thread that is woken take the processor of the one that woke it, in
    the middle of what that does. If the first then waits for the other in a loop, it does so until
    its time slice ends (about 3 ms). The policy SCHED_BATCH displaces nobody: see sched(7)."""
    changed = False
    if sys.platform == "linux":
        with suppress(OSError):  # where that is not allowed nothing is lost but time
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
                changed = True
    try:
        yield
    finally:
        if changed:
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


# Linear algebra in one thread, for what has to give the same bits wherever it runs.
#
# OpenBLAS cuts its work by its number of threads, and the cut decides how sums round. That number
# is a setting of the process. `threadpoolctl.threadpool_limits` alone is not enough where several
# threads compute: the first that ends restores what the others still rely on, in a thread it does
# silently nothing while another has set a limit, and the last to leave may restore a limit for
# good.
_lock = threading.Lock()
_inside = 0  # callers that want one thread now
_before: list[tuple[Any, int]] = []  # libraries, and how many threads each had


@contextmanager
def one_thread() -> Iterator[int]:
    """The BLAS of NumPy and SciPy computes in the calling thread alone; how many threads it had.

    The last of several callers restores that number, whichever thread it is."""
    global _inside, _before
    with _lock:
        if not _inside:
            _before = [(library, library.num_threads) for library in _libraries()]
            _set([(library, 1) for library, _ in _before])
        _inside += 1
        had = max((count for _, count in _before), default=1)
    try:
        yield had
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _set(_before)


def _libraries() -> Sequence[Any]:
    from threadpoolctl import ThreadpoolController

    importlib.import_module("scipy.linalg.lapack")  # what is loaded later would not be limited
    return ThreadpoolController().select(user_api="blas").lib_controllers


def _set(counts: Sequence[tuple[Any, int]]) -> None:
    for library, count in counts:
        # From version 3.8 on, one thread is in control and what others ask for is ignored.
        release = getattr(library, "clear_controlling_thread", None)
        if release:
            release(force=True)
        library.set_num_threads(count)
        if release:
            release(force=True)
