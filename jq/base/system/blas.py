"""Linear algebra in one thread, for what has to give the same bits wherever it runs.

OpenBLAS cuts its work by its number of threads, and the cut decides how sums round. That number
is a setting of the process. `threadpoolctl.threadpool_limits` alone is not enough where several
threads compute: the first that ends restores what the others still rely on, in a thread it does
silently nothing while another has set a limit, and the last to leave may restore a limit for good.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_inside = 0  # callers that want one thread now
_before: list[tuple[Any, int]] = []  # libraries, and how many threads each had


@contextmanager
def one_thread() -> Iterator[int]:
    """The BLAS of NumPy and SciPy computes in the calling thread alone; how many threads it had.

    The last of several callers restores that number, whichever thread it is.
    """
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
    import scipy.linalg.lapack  # noqa: F401 - what is loaded later would not be limited
    from threadpoolctl import ThreadpoolController

    found: Sequence[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return found


def _set(counts: Sequence[tuple[Any, int]]) -> None:
    for library, count in counts:
        # From version 3.8 on, one thread is in control and what others ask for is ignored.
        release = getattr(library, "clear_controlling_thread", None)
        if release:
            release(force=True)
        library.set_num_threads(count)
        if release:
            release(force=True)
