"""What this machine's processor is and can do, as the operating system tells."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from pathlib import Path

# Linux, x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), for all threads.
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18


def machine() -> str:
    """Architecture by LLVM's name: `x86_64`, `aarch64`."""
    name = platform.machine()
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(name, name)


def flags() -> frozenset[str]:
    """Processor features by Linux's names; empty where they cannot be read."""
    return frozenset((_cpu_info("flags") or _cpu_info("Features")).split())


def vendor() -> str:
    """`GenuineIntel`, `AuthenticAMD`, or empty."""
    return _cpu_info("vendor_id")


def cpu_model() -> str:
    """The processor's own name, or empty."""
    return _cpu_info("model name")


def _cpu_info(key: str) -> str:
    """A line of the first processor in /proc/cpuinfo."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")


@cache
def permit_tiles() -> bool:
    """Asks for matrix tiles, which belong to a process only then; False where there are none."""
    if sys.platform != "linux" or machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
