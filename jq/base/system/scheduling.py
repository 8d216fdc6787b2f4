"""The operating system's scheduling of the calling thread."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def patient() -> Iterator[None]:
    """Within it, a thread that wakes this one goes on, and this one waits for a free processor.

    By default Linux may let a thread that is woken take the processor of the one that woke it, in
    the middle of what that does. If the first then waits for the other in a loop, it does so until
    its time slice ends (about 3 ms). The policy SCHED_BATCH displaces nobody: see sched(7).
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
