"""Matrix tiles belong to a process that has asked the operating system for them."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

# Linux, x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), for all threads.
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18


@cache
def permit() -> bool:
    """Asks the kernel to let this process use tiles; False where there are none."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
