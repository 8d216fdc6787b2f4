"""A compiled module with each input, constant and result between pages that may not be touched.

They end (up to the 64 bytes that IREE aligns to) where such a page begins; a stray access ends the
process, and a write to the bytes between is seen.
"""

from __future__ import annotations

import math
from typing import Any

import iree.runtime as rt
import numpy as np

from jq.base.system.processor import permit_tiles
from jq.iree.devices import element_type
from jq.iree.runtime import SCOPE
from suites.memory import Built, StrayAccess, read
from tests.kernels.guard import ALIGNED, Guarded


class Guards:
    """Memory between pages; `late` names what ends after its page instead, as a test has it."""

    def __init__(self, late: str = "") -> None:
        self._late, self._guards = late, list[Guarded]()

    def room(self, size: int, kind: str) -> np.ndarray:
        """So many bytes for one of the `kind`: inputs, constants, results."""
        self._guards.append(Guarded(size, ALIGNED if kind == self._late else 0))
        return self._guards[-1].bytes

    def filled(self, array: np.ndarray, kind: str) -> np.ndarray:
        """Room that holds an array's bytes, as far as it may be touched."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        room = self.room(data.size, kind)
        inside = max(0, data.size - ALIGNED) if kind == self._late else data.size
        room[:inside] = data[:inside]
        return room

    @property
    def touched(self) -> int:
        """Bytes between tensors and their pages that have changed."""
        return sum(each.touched for each in self._guards)


def call_guarded(built: Built, late: str = "") -> list[np.ndarray]:
    """The results; `StrayAccess` where bytes between a tensor and its page have changed."""
    permit_tiles()
    guards, config = Guards(late), rt.Config(device=rt.get_device("local-sync"))
    index = rt.ParameterIndex()
    for key, array in built.parameters.items():
        index.add_buffer(key, guards.filled(array, "constants"))
    provider = index.create_provider(scope=SCOPE)
    modules = [
        *config.default_vm_modules,
        rt.create_io_parameters_module(config.vm_instance, provider),
        rt.VmModule.copy_buffer(config.vm_instance, built.vmfb),
    ]
    context = rt.VmContext(config.vm_instance, modules=modules)
    arguments, given = rt.VmVariantList(len(built.inputs)), rt.VmVariantList(4)
    for array in built.inputs:
        held = _buffer(config.device, guards.filled(array, "inputs"))
        arguments.push_ref(rt.HalBufferView(held, array.shape, element_type(array.dtype)))
    sizes = [math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in built.outputs]
    rooms = [guards.room(size, "results") for size in sizes]
    for room in rooms:
        arguments.push_ref(_buffer(config.device, room))
    context.invoke(modules[-1].lookup_function("main"), arguments, given)
    if guards.touched:
        raise StrayAccess(f"{guards.touched} bytes beside the tensors have changed")
    return [read(spec, room) for spec, room in zip(built.outputs, rooms, strict=True)]


def _buffer(device: Any, room: np.ndarray) -> Any:
    kind = rt.MemoryType.DEVICE_LOCAL | rt.MemoryType.HOST_VISIBLE
    if not room.size:
        return device.allocator.allocate_buffer(kind, rt.BufferUsage.DEFAULT, 0)
    return device.allocator.import_host_allocation(room, int(kind), int(rt.BufferUsage.DEFAULT))
