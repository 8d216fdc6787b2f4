"""Devices of the runtime: this thread, or the one pool of worker threads of a process."""

import os
import threading
from typing import Any

import ml_dtypes
import numpy as np
from iree import runtime as rt
from iree.runtime import HalElementType

from jq.base.errors import UserError, check_known
from jq.base.system.processor import MOST_THREADS

# Bytes of the stack of each worker thread. The compiler lets a function take 256 KiB
# (`BASE_FLAGS` of `jq.iree.compiler`); a worker's own stack has half of that, and memory that is
# not ours lies after it.
WORKER_STACK = 1 << 20

# The memory that a call needs for a while is kept for the next one, which would get it cleared:
# buffers of this size at most, of all sizes together, and so many that are free.
KEPT = "caching:*=64mib;256mib;8"

# Microseconds that a worker without work looks for more before it sleeps. Waking it takes longer
# than many kernels, and it is soon needed again: between two kernels that are cut into workgroups
# there are often small ones that a single worker computes.
SPIN = 10

_LOCK = threading.Lock()
_workers: int | None = None  # of local-task, fixed when its driver is first created
_owner: int | None = None  # the process that they are of
_given: dict[str, tuple[Any, Any]] = {}  # driver and device, by the driver's name


def drivers() -> list[str]:
    """Names of the devices' drivers that this build of the runtime has."""
    return sorted(rt.query_available_drivers())


def device_of(driver: str, threads: int | None) -> Any:
    """The runtime's device of a driver.

    Args:
        threads: 1 means `local-sync`, more `local-task` with that many workers; None leaves the
            driver and its number of workers as they are.

    Raises:
        UserError: no such driver, or this process has other workers, or those of its parent."""
    global _workers, _owner
    if threads is not None:
        if not 1 <= threads <= MOST_THREADS:
            raise UserError(f"threads must be between 1 and {MOST_THREADS}, got {threads}")
        driver = "local-sync" if threads == 1 else "local-task"
    check_known("driver", driver, drivers())
    with _LOCK:
        if driver == "local-task" and _owner not in (None, os.getpid()):
            what = "this process was forked from one that runs models on several threads"
            hint = "use threads=1 here, or start it with multiprocessing's `spawn`"
            raise UserError(what, hint=hint)
        if driver == "local-task" and _owner is None:
            flags = {"task_worker_stack_size": WORKER_STACK, "task_worker_spin_us": SPIN}
            rt.flags.parse_flags(*(f"--{name}={value}" for name, value in flags.items()))
            _owner = os.getpid()
        if driver == "local-task" and threads is not None:
            if _workers not in (None, threads):
                what = f"this process already runs modules on {_workers} threads, not {threads}"
                raise UserError(what, hint="use one number of threads above 1 in a process")
            if _workers is None:
                rt.flags.parse_flags(f"--task_topology_group_count={threads}")
                _workers = threads
        if driver not in _given:
            made = rt.get_driver(driver)
            _given[driver] = made, made.create_default_device(allocators=[KEPT])
        return _given[driver][1]


def given() -> list[Any]:
    """The drivers and devices of this process, and of the one that it was forked from."""
    return [part for pair in _given.values() for part in pair]


# Arrays of NumPy as the runtime takes and gives them.
_ELEMENTS: dict[np.dtype[Any], Any] = {
    np.dtype(f"{kind}{bits}"): getattr(HalElementType, f"{kind.upper()}_{bits}")
    for kind, sizes in (("int", (8, 16, 32, 64)), ("float", (16, 32, 64)), ("complex", (64, 128)))
    for bits in sizes
} | {
    np.dtype(np.bool_): HalElementType.BOOL_8,
    np.dtype(ml_dtypes.bfloat16): HalElementType.BFLOAT_16,
    np.dtype(ml_dtypes.float8_e4m3fn): HalElementType.FLOAT_8_E4M3_FN,
    np.dtype(ml_dtypes.float8_e5m2): HalElementType.FLOAT_8_E5M2,
    np.dtype(ml_dtypes.float8_e8m0fnu): HalElementType.FLOAT_8_E8M0_FNU,
}
_DTYPES = {int(element): dtype for dtype, element in _ELEMENTS.items()} | {
    int(getattr(HalElementType, f"{sign}INT_{8 * n}")): np.dtype(f"{kind}{n}")
    for sign, kind in (("S", "i"), ("U", "u"))
    for n in (1, 2, 4, 8)
}
# Compiled functions take integers without a sign: an unsigned argument is passed as its bits.
_SIGNLESS = {np.dtype(f"u{n}"): np.dtype(f"i{n}") for n in (1, 2, 4, 8)}

# Integers of less than a byte have a byte each.
BYTES = {np.dtype(getattr(ml_dtypes, f"{sign}int{n}")) for sign in ("", "u") for n in (2, 4)}


def element_type(dtype: np.dtype[Any]) -> Any:
    """The runtime's name of a type, as a compiled function takes it: integers have no sign."""
    element = _ELEMENTS.get(_SIGNLESS.get(dtype, dtype))
    if element is None:
        raise UserError(f"IREE's runtime takes no arrays of {dtype}")
    return element


def array_of(view: Any, copy: bool = True) -> np.ndarray:
    """A result as an array: a copy, or the runtime's own memory, which stays as long as the array
    does. A result that a later call writes in place is only of use as a copy."""
    dtype = _DTYPES[int(view.element_type)]
    shape = tuple(view.shape)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    data = view.map().asarray([size], np.dtype(np.uint8))
    return (data.copy() if copy else data).view(dtype).reshape(shape)


def as_type(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """A result under the type that it stands for: the module forgets signs, and stores types that
    IREE has none of as integers of their width. Other bits are never taken for what they are not.
    """
    if array.dtype == dtype:
        return array
    forgotten = dtype.kind in "iu" or dtype not in _ELEMENTS
    if array.dtype.kind not in "iu" or array.itemsize != dtype.itemsize or not forgotten:
        raise UserError(f"the module gives {array.dtype}, and not {dtype} as is said of it")
    return array.astype(dtype) if dtype in BYTES else array.view(dtype)
