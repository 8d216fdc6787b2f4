"""Memory of this process, and of the machine."""

import os
import resource
import sys
from pathlib import Path


def peak_rss_bytes() -> int:
    """The most memory this process has held so far.

    Linux hands `ru_maxrss` on to a child, which then reports its parent's peak: /proc does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(
            x for x in status.read_text(encoding="utf-8").splitlines() if x.startswith("VmHWM")
        )
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def physical_bytes() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
