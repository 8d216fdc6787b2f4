"""Runs a compiled module on NumPy arrays."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from iree import runtime as rt
from iree.runtime import HalElementType

from jq.errors import JqError, UserError
from jq.system.files import check_input
from jq.system.processor import MOST_THREADS, permit_tiles

SCOPE = "model"  # of the parameters

_ELEMENTS: dict[np.dtype[Any], Any] = {
    np.dtype(dtype): element
    for dtype, element in (
        (np.bool_, HalElementType.BOOL_8),
        (np.int8, HalElementType.INT_8),
        (np.int16, HalElementType.INT_16),
        (np.int32, HalElementType.INT_32),
        (np.int64, HalElementType.INT_64),
        (np.float16, HalElementType.FLOAT_16),
        (np.float32, HalElementType.FLOAT_32),
        (np.float64, HalElementType.FLOAT_64),
        (np.complex64, HalElementType.COMPLEX_64),
        (np.complex128, HalElementType.COMPLEX_128),
        (ml_dtypes.bfloat16, HalElementType.BFLOAT_16),
        (ml_dtypes.float8_e4m3fn, HalElementType.FLOAT_8_E4M3_FN),
        (ml_dtypes.float8_e5m2, HalElementType.FLOAT_8_E5M2),
        (ml_dtypes.float8_e8m0fnu, HalElementType.FLOAT_8_E8M0_FNU),
    )
}
_DTYPES = {int(element): dtype for dtype, element in _ELEMENTS.items()} | {
    int(getattr(HalElementType, f"{sign}INT_{8 * n}")): np.dtype(f"{kind}{n}")
    for sign, kind in (("S", "i"), ("U", "u"))
    for n in (1, 2, 4, 8)
}
# Compiled functions take integers without a sign: an unsigned argument is passed as its bits.
_SIGNLESS = {np.dtype(f"u{n}"): np.dtype(f"i{n}") for n in (1, 2, 4, 8)}

# Integers of less than a byte have a byte each.
_BYTES = {np.dtype(getattr(ml_dtypes, f"{sign}int{n}")) for sign in ("", "u") for n in (2, 4)}

# What the runtime's status codes become in Python.
_RUNTIME_ERRORS = (RuntimeError, ValueError, LookupError, OSError, MemoryError)
# Codes that say that the module or its arguments are wrong, not that the machine fails.
_OF_WHAT_IS_GIVEN = ("INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "UNIMPLEMENTED", "DATA_LOSS")

# Bytes of the stack of each worker thread. The compiler lets a function take 256 KiB
# (`BASE_FLAGS` of `jq.iree.compiler`); a worker's own stack has half of that, and memory that is
# not ours lies after it.
WORKER_STACK = 1 << 20

_LOCK = threading.Lock()
_workers: int | None = None  # of local-task, fixed when its driver is first created
_owner: int | None = None  # the process that they are of


def drivers() -> list[str]:
    """Names of the devices' drivers that this build of the runtime has."""
    return sorted(rt.query_available_drivers())


class ParameterFiles:
    """Archives of parameters, mapped into memory once for all modules that read them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.index = rt.ParameterIndex()
        for path in paths:
            check_input(path)  # a pipe would be waited for
            try:
                self.index.load(str(path))
            except _RUNTIME_ERRORS as error:
                raise _readable(error, f"cannot read parameters from {path}") from error


@dataclass(frozen=True)
class Archive:
    """A parameter file that is in memory; `kind` is `irpa` or `safetensors`."""

    memory: mmap.mmap
    kind: str


class Executable:
    """A loaded module, called with NumPy arrays; safe to share between threads when stateless."""

    def __init__(self, context: Any, device: Any, function: Any, dtypes: Sequence[Any] | None):
        self._context, self._device, self._function = context, device, function
        self._process = os.getpid()
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
    ) -> Executable:
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
            function: the exported function to call.
        """
        for path in (vmfb, parameters):
            if isinstance(path, Path) and not path.is_file():
                raise UserError(f"no such file: {path}")
        permit_tiles()  # a module's kernels may use matrix tiles
        device = _device(driver, threads)
        try:
            config = rt.Config(device=device)
            modules = [*config.default_vm_modules]
            if parameters is not None:
                provider = _index(parameters).create_provider(scope=SCOPE)
                modules.append(rt.create_io_parameters_module(config.vm_instance, provider))
            if isinstance(vmfb, Path):
                module = rt.VmModule.mmap(config.vm_instance, str(vmfb))
            else:
                module = rt.VmModule.copy_buffer(config.vm_instance, vmfb)
            context = rt.VmContext(config.vm_instance, modules=[*modules, module])
            entry = module.lookup_function(function)
        except _RUNTIME_ERRORS as error:
            raise _readable(error, "cannot load the compiled module") from error
        if entry is None:
            raise UserError(f"the compiled module has no function {function!r}")
        return cls(context, config.device, entry, dtypes)

    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        """Results as fresh arrays; the caller's arrays are copied in and never written."""
        self._check_process()
        arguments, results = rt.VmVariantList(len(inputs)), rt.VmVariantList(4)
        for value in inputs:
            arguments.push_ref(self._view(np.asarray(value)))
        try:
            self._context.invoke(self._function, arguments, results)
        except _RUNTIME_ERRORS as error:
            raise _readable(error, "the compiled module failed") from error
        views = [results.get_as_object(i, rt.HalBufferView) for i in range(len(results))]
        arrays = [_array(view) for view in views]
        if self._dtypes is None:
            return arrays
        if len(arrays) != len(self._dtypes):
            raise UserError(f"the module gives {len(arrays)} results, not {len(self._dtypes)}")
        return [_as(a, t) for a, t in zip(arrays, self._dtypes, strict=True)]

    def place(self, array: np.ndarray) -> Any:
        """A copy of an array on the device, for `call_placed`."""
        return self._view(np.asarray(array))

    def call_placed(self, *inputs: Any) -> list[Any]:
        """A call whose inputs were placed, or are results of such calls, and whose results stay on
        the device: `fetch` gives them. A program may write its result in an input's place, so that
        only the result is of use then.
        """
        arguments, results = rt.VmVariantList(len(inputs)), rt.VmVariantList(4)
        for view in inputs:
            arguments.push_ref(view)
        try:
            self._context.invoke(self._function, arguments, results)
        except _RUNTIME_ERRORS as error:
            raise _readable(error, "the compiled module failed") from error
        return [results.get_as_object(i, rt.HalBufferView) for i in range(len(results))]

    @staticmethod
    def fetch(view: Any) -> np.ndarray:
        """A copy of a result of `call_placed`."""
        return _array(view)

    def bind(self, *inputs: Any) -> Callable[[], None]:
        """A call with these inputs, which are on the device already and whose results stay there.

        For measuring; a program that updates an input in place does so from call to call.
        """
        self._check_process()
        views = [self._view(np.asarray(value)) for value in inputs]

        def call() -> None:
            arguments, results = rt.VmVariantList(len(views)), rt.VmVariantList(4)
            for view in views:
                arguments.push_ref(view)
            try:
                self._context.invoke(self._function, arguments, results)
            except _RUNTIME_ERRORS as error:
                raise _readable(error, "the compiled module failed") from error

        return call

    def _check_process(self) -> None:
        """A forked process has none of the threads that its parent's runtime has: a call would
        wait for them for ever."""
        if os.getpid() != self._process:
            raise UserError(
                "a model that was called before a fork cannot be called in the child",
                hint="load it in the child, or start that with multiprocessing's `spawn`",
            )

    def _view(self, array: np.ndarray) -> Any:
        array = array.astype(np.int8) if array.dtype in _BYTES else array
        element = element_type(array.dtype)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        allocator = self._device.allocator
        kind, usage = rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT
        if data.size:
            buffer = allocator.allocate_buffer_copy(kind, usage, self._device, data)
        else:
            buffer = allocator.allocate_buffer(kind, usage, 0)
        return rt.HalBufferView(buffer, array.shape, element)


def element_type(dtype: np.dtype[Any]) -> Any:
    """The runtime's name of a type, as a compiled function takes it: integers have no sign."""
    element = _ELEMENTS.get(_SIGNLESS.get(dtype, dtype))
    if element is None:
        raise UserError(f"IREE's runtime takes no arrays of {dtype}")
    return element


def _array(view: Any) -> np.ndarray:
    """A copy of a result: the runtime reuses the memory."""
    dtype = _DTYPES[int(view.element_type)]
    shape = tuple(view.shape)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    data = view.map().asarray([size], np.dtype(np.uint8))
    return data.copy().view(dtype).reshape(shape)


def _as(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """A result under the type that it stands for: the module forgets signs, and stores types that
    IREE has none of as integers of their width. Other bits are never taken for what they are not.
    """
    if array.dtype == dtype:
        return array
    forgotten = dtype.kind in "iu" or dtype not in _ELEMENTS
    if array.dtype.kind not in "iu" or array.itemsize != dtype.itemsize or not forgotten:
        raise UserError(f"the module gives {array.dtype}, and not {dtype} as is said of it")
    return array.astype(dtype) if dtype in _BYTES else array.view(dtype)


def _device(driver: str, threads: int | None) -> Any:
    global _workers, _owner
    if threads is not None:
        if not 1 <= threads <= MOST_THREADS:
            raise UserError(f"threads must be between 1 and {MOST_THREADS}, got {threads}")
        driver = "local-sync" if threads == 1 else "local-task"
    if driver not in drivers():
        known = ", ".join(drivers())
        raise UserError(f"unknown driver {driver!r}", hint=f"known: {known}")
    with _LOCK:
        if driver == "local-task" and _owner not in (None, os.getpid()):
            raise UserError(
                "this process was forked from one that runs models on several threads",
                hint="use threads=1 here, or start it with multiprocessing's `spawn`",
            )
        if driver == "local-task" and _owner is None:
            rt.flags.parse_flags(f"--task_worker_stack_size={WORKER_STACK}")
            _owner = os.getpid()
        if driver == "local-task" and threads is not None:
            if _workers not in (None, threads):
                raise UserError(
                    f"this process already runs modules on {_workers} threads, not {threads}",
                    hint="use one number of threads above 1 in a process",
                )
            if _workers is None:
                rt.flags.parse_flags(f"--task_topology_group_count={threads}")
                _workers = threads
        return rt.get_device(driver)


def _index(parameters: Path | Mapping[str, np.ndarray] | ParameterFiles | Archive) -> Any:
    if isinstance(parameters, ParameterFiles):
        return parameters.index
    index = rt.ParameterIndex()
    if isinstance(parameters, Path):
        index.load(str(parameters))
    elif isinstance(parameters, Archive):
        handle = rt.FileHandle.wrap_memory(parameters.memory)
        index.load_from_file_handle(handle, parameters.kind)
    else:
        for key, array in parameters.items():
            index.add_buffer(key, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return index


def _readable(error: Exception, what: str) -> JqError:
    """One line: the runtime's message without its source position and stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else type(error).__name__
    _, _, status = line.rpartition(".c:")
    reason = (status.partition(": ")[2] or line).partition("; while invoking")[0]
    given = isinstance(error, ValueError) or any(code in line for code in _OF_WHAT_IS_GIVEN)
    kind = UserError if given else JqError
    return kind(f"{what}: {reason}"[:400])
