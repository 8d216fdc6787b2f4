"""How the operating system's scheduler treats the calling thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def patient() -> Iterator[None]:
    """A thread that wakes this one meanwhile goes on; this one waits until a processor is free.

    Linux else lets the thread that was woken take the other's processor, in the middle of what it
    does. One that waits for the other in a loop then waits for as long as it may compute: 3 ms.
    """
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
