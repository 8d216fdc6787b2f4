"""Runs a compiled module on NumPy arrays."""

import mmap
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from iree import runtime as rt

from jq.base import JqError, UserError
from jq.base.system.files import mapped
from jq.base.system.processor import permit_tiles
from jq.base.system.threads import never_released, patient
from jq.iree.devices import BYTES, array_of, as_type, device_of, element_type, given

# Errors of the runtime as errors of ours. What the runtime's status codes become in Python.
RUNTIME_ERRORS = (RuntimeError, ValueError, LookupError, OSError, MemoryError)
# Codes that say that the module or its arguments are wrong, not that the machine fails.
_OF_WHAT_IS_GIVEN = ("INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "UNIMPLEMENTED", "DATA_LOSS")


def readable(error: Exception, what: str) -> JqError:
    """One line: the runtime's message without its source position and stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else type(error).__name__
    _, _, status = line.rpartition(".c:")
    reason = (status.partition(": ")[2] or line).partition("; while invoking")[0]
    given = isinstance(error, ValueError) or any(code in line for code in _OF_WHAT_IS_GIVEN)
    return (UserError if given else JqError)(f"{what}: {reason}"[:400])


SCOPE = "model"  # of the parameters


class ParameterFiles:
    """Archives of parameters, mapped into memory once for all modules that read them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.index = rt.ParameterIndex()
        for path in paths:
            try:
                _add(self.index, Archive.of(path))
            except RUNTIME_ERRORS as error:
                raise readable(error, f"cannot read parameters from {path}") from error


@dataclass(frozen=True)
class Archive:
    """A parameter file that is in memory; `kind` is `irpa` or `safetensors`."""

    memory: mmap.mmap | bytes
    kind: str

    @staticmethod
    def of(path: Path) -> "Archive":
        """The file, mapped here: the runtime takes no name that is not text."""
        return Archive(mapped(path), path.suffix[1:])


def _add(index: Any, archive: Archive) -> None:
    index.load_from_file_handle(rt.FileHandle.wrap_memory(archive.memory), archive.kind)


def index_of(parameters: Path | Mapping[str, np.ndarray] | ParameterFiles | Archive) -> Any:
    """The runtime's index of parameters: of an archive that it maps, or of arrays by key."""
    if isinstance(parameters, ParameterFiles):
        return parameters.index
    index = rt.ParameterIndex()
    if isinstance(parameters, Path | Archive):
        _add(index, Archive.of(parameters) if isinstance(parameters, Path) else parameters)
    else:
        for key, array in parameters.items():
            index.add_buffer(key, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return index


_ALIVE: "weakref.WeakSet[Executable]" = weakref.WeakSet()


def _in_a_child() -> None:
    """Keeps, in a forked child, all of the parent's runtime, and of XLA's, from being released."""
    parts = [p for e in list(_ALIVE) for p in (e._context, e._device, e._function)]
    if parts:
        parts += given()
    if "jax" in sys.modules:  # the parent may have compiled or measured here
        from jq.base.from_jax import clients

        parts += clients()
    if parts:
        never_released(parts)


os.register_at_fork(after_in_child=_in_a_child)


class Executable:
    """A loaded module, called with NumPy arrays; safe to share between threads when stateless."""

    def __init__(
        self,
        context: Any,
        device: Any,
        function: Any,
        dtypes: Sequence[Any] | None,
        workers: bool = False,
    ) -> None:
        self._context, self._device, self._function = context, device, function
        # The runtime waits in a loop for the worker that woke the caller.
        self._waits = patient if workers else nullcontext
        self._process = os.getpid()
        _ALIVE.add(self)
        self._dtypes = None if dtypes is None else [np.dtype(dtype) for dtype in dtypes]

    @classmethod
    def load(
        cls,
        vmfb: Path | bytes | mmap.mmap,
        parameters: Path | Mapping[str, np.ndarray] | ParameterFiles | Archive | None = None,
        *,
        driver: str = "local-sync",
        threads: int | None = None,
        dtypes: Sequence[Any] | None = None,
        function: str = "main",
    ) -> "Executable":
        """Loads a module.

        Args:
            vmfb: a file (memory-mapped), or its contents.
            parameters: an archive (`.irpa`, `.safetensors`, `.gguf`; memory-mapped), or the arrays;
                or files that several modules share.
            driver: `local-sync` runs on the calling thread, `local-task` on worker threads.
            threads: 1 means `local-sync`, more `local-task` with that many workers. A process
                has one pool of workers: a second, different number above 1 is a `UserError`.
            dtypes: dtypes of the results. Without them an unsigned result may come back as the
                signed type of its width: a compiled module mostly forgets the sign.
            function: the exported function to call."""
        for path in (vmfb, parameters):
            if isinstance(path, Path) and not path.is_file():
                raise UserError(f"no such file: {path}")
        permit_tiles()  # a module's kernels may use matrix tiles
        device = device_of(driver, threads)
        try:
            config = rt.Config(device=device)
            modules = [*config.default_vm_modules]
            if parameters is not None:
                provider = index_of(parameters).create_provider(scope=SCOPE)
                modules.append(rt.create_io_parameters_module(config.vm_instance, provider))
            if isinstance(vmfb, Path):
                module = rt.VmModule.wrap_buffer(config.vm_instance, mapped(vmfb))
            else:
                module = rt.VmModule.copy_buffer(config.vm_instance, vmfb)
            context = rt.VmContext(config.vm_instance, modules=[*modules, module])
            entry = module.lookup_function(function)
        except RUNTIME_ERRORS as error:
            raise readable(error, "cannot load the compiled module") from error
        if entry is None:
            raise UserError(f"the compiled module has no function {function!r}")
        workers = driver != "local-sync" if threads is None else threads > 1
        return cls(context, config.device, entry, dtypes, workers)

    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        """Results as fresh arrays; the caller's arrays are copied in and never written."""
        self._check_process()
        arrays = [array_of(view) for view in self.call_placed(*map(self.place, inputs))]
        if self._dtypes is None:
            return arrays
        if len(arrays) != len(self._dtypes):
            raise UserError(f"the module gives {len(arrays)} results, not {len(self._dtypes)}")
        return [as_type(a, t) for a, t in zip(arrays, self._dtypes, strict=True)]

    def call_placed(self, *inputs: Any) -> list[Any]:
        """A call whose inputs were placed, or are results of such calls, and whose results stay on
        the device: `fetch` gives them. A program may write its result in an input's place, so that
        only the result is of use then."""
        results = self._invoke(_listed(inputs))
        return [results.get_as_object(i, rt.HalBufferView) for i in range(len(results))]

    @staticmethod
    def fetch(view: Any, copy: bool = True) -> np.ndarray:
        """A result of `call_placed`: a copy, or, where no later call takes it as an input that it
        may write over, the memory itself."""
        return array_of(view, copy)

    def bind(self, *inputs: Any) -> Callable[[], Any]:
        """A call with these inputs, which are on the device already and whose results stay there.
        For measuring; a program that updates an input in place does so from call to call."""
        self._check_process()
        return partial(self._invoke, _listed([*map(self.place, inputs)]))

    def _invoke(self, arguments: Any) -> Any:
        results = rt.VmVariantList(4)
        try:
            with self._waits():
                self._context.invoke(self._function, arguments, results)
        except RUNTIME_ERRORS as error:
            raise readable(error, "the compiled module failed") from error
        return results

    def _check_process(self) -> None:
        """A forked process has none of the threads that its parent's runtime has: a call would
        wait for them for ever."""
        if os.getpid() != self._process:
            what = "a model that was called before a fork cannot be called in the child"
            hint = "load it in the child, or start that with multiprocessing's `spawn`"
            raise UserError(what, hint=hint)

    def place(self, array: Any) -> Any:
        """A copy of an array on the device, for `call_placed`."""
        array = np.asarray(array)
        array = array.astype(np.int8) if array.dtype in BYTES else array
        element = element_type(array.dtype)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        allocator = self._device.allocator
        kind, usage = rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT
        if data.size:
            buffer = allocator.allocate_buffer_copy(kind, usage, self._device, data)
        else:
            buffer = allocator.allocate_buffer(kind, usage, 0)
        return rt.HalBufferView(buffer, array.shape, element)


def _listed(views: Sequence[Any]) -> Any:
    """The arguments of a call."""
    arguments = rt.VmVariantList(len(views))
    for view in views:
        arguments.push_ref(view)
    return arguments
