"""Memory between unreadable pages, for operands and results of kernels.

Run as a program, with kernels' descriptions on standard input: calls each on tensors that end (up
to the 64 bytes that IREE aligns to) where a page begins that may not be touched, with a pattern in
the bytes that are left. Prints how many of those changed; a stray access ends the process.
With an argument N tensor N of every kernel begins 64 bytes later: its end may not be touched.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys

import iree.runtime as rt
import numpy as np

from jq.base.system.processor import permit_tiles
from jq.kernels import Kernel
from tests.kernels.harness import compile_text, linked

ALIGNED, PATTERN, PAGE = 64, 0x5A, mmap.PAGESIZE
UNREADABLE = 0  # PROT_NONE
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Guarded:
    """`size` bytes in front of an unreadable page, and after one."""

    def __init__(self, size: int, late: int = 0) -> None:
        room = -(-size // ALIGNED) * ALIGNED
        pages = -(-room // PAGE)
        self._map = mmap.mmap(-1, (pages + 2) * PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        whole[:] = PATTERN
        start = (pages + 1) * PAGE - room + late
        self.bytes = whole[start : start + size]
        self._around = whole[PAGE:start], whole[start + size : (pages + 1) * PAGE]
        base = whole.ctypes.data
        for page in (0, pages + 1):
            if _LIBC.mprotect(base + page * PAGE, PAGE, UNREADABLE):
                raise OSError(ctypes.get_errno(), "mprotect")

    @property
    def touched(self) -> int:
        """Bytes around that do not hold the pattern any more."""
        return sum(int((part != PATTERN).sum()) for part in self._around)


def run(kernels: list[Kernel], broken: int) -> None:
    permit_tiles()
    config = rt.Config("local-sync")
    text = linked(kernels, storage=True)
    module = rt.VmModule.copy_buffer(config.vm_instance, compile_text(text))
    context = rt.VmContext(config.vm_instance, modules=[*config.default_vm_modules, module])
    rng = np.random.default_rng(0)
    for i, kernel in enumerate(kernels):
        operands = rt.VmVariantList(len(kernel.operands) + len(kernel.results))
        guards = []
        for position, kind in enumerate((*kernel.operands, *kernel.results)):
            count = int(np.prod(kind.shape))
            low, high = (-3, 4) if kind.element[0] == "i" else (1, 3)
            values = rng.integers(low, high, count).astype(kind.dtype).view(np.uint8)
            guard = Guarded(values.size, ALIGNED if position == broken else 0)
            inside = len(guard.bytes) - (ALIGNED if position == broken else 0)
            guard.bytes[:inside] = values[:inside]
            buffer = config.device.allocator.import_host_allocation(
                guard.bytes,
                int(rt.MemoryType.DEVICE_LOCAL | rt.MemoryType.HOST_VISIBLE),
                int(rt.BufferUsage.DEFAULT),
            )
            guards.append(guard)
            operands.push_ref(buffer)
        results = rt.VmVariantList(len(kernel.results))
        context.invoke(module.lookup_function(f"f{i}"), operands, results)
        print(f"{kernel.name} touched {sum(g.touched for g in guards)}")


if __name__ == "__main__":
    descriptions = json.load(sys.stdin)
    broken = int(sys.argv[1]) if sys.argv[1:] else -1
    run([Kernel.from_json(text) for text in descriptions], broken)
