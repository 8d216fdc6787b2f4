"""What this machine's processor is and can do, as the operating system tells."""

from __future__ import annotations

import ctypes
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# Linux, x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), for all threads.
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18


@dataclass(frozen=True)
class Processor:
    """Attributes:
    machine: architecture by LLVM's name (`x86_64`, `aarch64`).
    flags: features by Linux's names; empty where they cannot be read.
    vendor: `GenuineIntel`, `AuthenticAMD`, or empty.
    model: the processor's own name, or empty.
    """

    machine: str
    flags: frozenset[str] = frozenset()
    vendor: str = ""
    model: str = ""


def machine_name(name: str) -> str:
    """LLVM's name of an architecture that the system may call otherwise."""
    name = name.lower()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)


def this_processor(cpuinfo: Path = CPUINFO, machine: str | None = None) -> Processor:
    """The processor that /proc/cpuinfo names first; without that file, its architecture alone."""
    fields: dict[str, str] = {}
    for line in cpuinfo.read_text().splitlines() if cpuinfo.is_file() else ():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return Processor(
        machine_name(machine or platform.machine()),
        frozenset((fields.get("flags") or fields.get("Features") or "").split()),
        fields.get("vendor_id", ""),
        fields.get("model name", ""),
    )


@cache
def permit_tiles() -> bool:
    """Asks for matrix tiles, which belong to a process only then; False where there are none."""
    if sys.platform != "linux" or machine_name(platform.machine()) != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
