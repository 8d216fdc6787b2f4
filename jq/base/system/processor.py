"""This machine's processor and what it can do, as the operating system tells."""

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jq.base.errors import UserError

MOST_THREADS = 1024  # that a program is run on
CPUINFO = Path("/proc/cpuinfo")
# Linux, x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), for all threads.
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18

# A rich machine can be told to pass for a poorer one: the variable names the best instruction set
# that is believed, and these are the beginnings of the flags that are not believed then.
LIMIT = "JAXQ_MAX_ISA"
_BEYOND_SSE2 = ("avx", "fma", "f16c", "bmi", "ssse3", "sse4", "xop", "vaes", "vpclmul", "gfni")
_BEYOND = {
    "amx_int8": (),
    "avx512_bf16": ("amx_",),
    "avx512_vnni": ("amx_", "avx512_bf16", "avx512_fp16"),
    "avx512": ("amx_", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni"),
    "avx_vnni": ("amx_", "avx512"),
    "avx2": ("amx_", "avx512", "avx_"),
    "sse2": ("amx_", *_BEYOND_SSE2),
}
LIMITS = tuple(_BEYOND)


@dataclass(frozen=True)
class Processor:
    """Attributes:
    machine: architecture by LLVM's name (`x86_64`, `aarch64`).
    flags: features by Linux's names; empty where they cannot be read.
    vendor: `GenuineIntel`, `AuthenticAMD`, or empty.
    model: the processor's own name, or empty."""

    machine: str
    flags: frozenset[str] = frozenset()
    vendor: str = ""
    model: str = ""


def machine_name(name: str) -> str:
    """LLVM's name of an architecture that the system may call otherwise."""
    name = name.lower()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)


def this_processor(cpuinfo: Path = CPUINFO, machine: str | None = None) -> Processor:
    """The processor that /proc/cpuinfo names first; without that file, its architecture alone.

    Flags beyond the instruction set that `JAXQ_MAX_ISA` names are left out."""
    # Of many cores it is long, and passes ask for each op: it is read once.
    fields = (_fields if cpuinfo == CPUINFO else _fields.__wrapped__)(cpuinfo)
    return Processor(
        machine_name(machine or platform.machine()),
        believed((fields.get("flags") or fields.get("Features") or "").split()),
        fields.get("vendor_id", ""),
        fields.get("model name", ""),
    )


@cache
def _fields(cpuinfo: Path) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else ():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields


def limit() -> str | None:
    """The instruction set that `JAXQ_MAX_ISA` names; None where it is not set."""
    name = os.environ.get(LIMIT) or None
    if name is not None and name not in LIMITS:
        known = ", ".join(LIMITS)
        raise UserError(f"{LIMIT}={name} is not an instruction set", hint=f"known: {known}")
    return name


def believed(flags: Iterable[str]) -> frozenset[str]:
    """The flags that the instruction set named by `JAXQ_MAX_ISA` allows; all of them without."""
    beyond = _BEYOND[limit() or "amx_int8"]
    return frozenset(flag for flag in flags if not flag.startswith(beyond))


@cache
def permit_tiles() -> bool:
    """Asks for matrix tiles, which belong to a process only then; False where there are none."""
    if sys.platform != "linux" or machine_name(platform.machine()) != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)


def peak_rss_bytes() -> int:
    """The most memory this process has held so far.

    Linux hands `ru_maxrss` on to a child, which then reports its parent's peak: /proc does not."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def physical_bytes() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
