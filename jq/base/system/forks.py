"""A forked child that holds objects with threads, which only its parent has, ends none the less.

To release such an object waits for its threads: when Python clears its modules, or in the
destructors of libraries, which run after that.
"""

import atexit
import ctypes
import os
from collections.abc import Iterable
from typing import Any


def never_released(objects: Iterable[Any]) -> None:
    """For a child right after the fork: keeps these objects until the process is gone, and ends
    without the destructors of libraries. The exit code, and what the child has registered with
    `atexit`, stay as they are."""
    for each in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):  # glibc: its handlers are given the exit code
        library.on_exit(library._exit, None)
    atexit.register(_silent)


def _silent() -> None:
    """Bindings report each object that is kept, on the standard error, after all else."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
