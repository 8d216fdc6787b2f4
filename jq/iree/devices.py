"""Devices of the runtime: this thread, or the one pool of worker threads of a process."""

import os
import threading
from typing import Any

from iree import runtime as rt

from jq.base.errors import UserError
from jq.base.system.processor import MOST_THREADS

# Bytes of the stack of each worker thread. The compiler lets a function take 256 KiB
# (`BASE_FLAGS` of `jq.iree.compiler`); a worker's own stack has half of that, and memory that is
# not ours lies after it.
WORKER_STACK = 1 << 20

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
        UserError: there is no such driver, or this process has workers of another number, or of
            its parent.
    """
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
            flags = {"task_worker_stack_size": WORKER_STACK, "task_worker_spin_us": SPIN}
            rt.flags.parse_flags(*(f"--{name}={value}" for name, value in flags.items()))
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
        _given[driver] = rt.get_driver(driver), rt.get_device(driver)
        return _given[driver][1]


def given() -> list[Any]:
    """The drivers and devices of this process, and of the one that it was forked from."""
    return [part for pair in _given.values() for part in pair]
