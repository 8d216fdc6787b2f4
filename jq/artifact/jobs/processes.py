"""Processes of this machine that do a job at a time; one that ends is replaced.

Each is a pool of one process (joblib's loky): in a pool of several, the end of one would end all.
A process imports what computes for seconds and keeps the works that it has opened, so it is kept
for the next jobs, until it had none for a while."""

import atexit
import importlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from joblib.externals.loky import process_executor
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from jq.artifact.jobs.work import Payload, Result, run_job
from jq.artifact.keys import versions
from jq.base.errors import JqError, UserError
from jq.base.system.signals import end_with_parent

TRIES = 3  # of a job whose process ends
IDLE = 60  # seconds that a process without a job is kept
LEAK = "_MAX_MEMORY_LEAK_SIZE"  # there is no public way; without it, works are opened again
# The memory that XLA takes for a call stays with the process. By default glibc gives large blocks
# back, and the pages of the next call are then cleared anew, which takes long where all processes
# do so at once. Other C libraries do not read these.
_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30)}
_THREADS = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Processes:
    """Called by as many threads as there are processes, with the number and item of a job."""

    def __init__(self, count: int, payload: Payload) -> None:
        self.payload, self._stopped = payload, False
        self._slots: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        self._all = _taken(count)
        for slot in self._all:
            self._slots.put(slot)

    def __call__(self, number: int, item: Any) -> tuple[int, Result]:
        slot = self._slots.get()
        try:
            for _ in range(TRIES):
                if self._stopped:
                    raise JqError("the jobs were stopped")
                try:
                    return slot.run(self.payload, number, item)
                except BrokenProcessPool:
                    slot.end()
        finally:
            self._slots.put(slot)
        reason = f"its process ended {TRIES} times"
        raise UserError(
            f"job {number} cannot be done: {reason}",
            hint="is there enough memory? Where XLA crashes, one job at a time computes without its"
            " optimizations",
        )

    def keep(self) -> None:
        """All jobs are done: the processes wait for the next, but for those of a daemon, a worker
        of somebody's pool, which ends without `atexit`: their semaphores would be left behind."""
        with _lock:
            _idle.extend(self._all)
        if multiprocessing.current_process().daemon:
            _end_idle()
        self._all = []

    def stop(self) -> None:
        """Ends all processes that are not kept, whatever they do."""
        self._stopped = True
        for slot in self._all:
            slot.end()


def warm(count: int, modules: Sequence[str] = ()) -> None:
    """Starts so many processes, which import what computes while the caller does other things."""
    slots = _taken(count)
    for slot in slots:
        slot.begin(modules)
    with _lock:
        _idle.extend(slots)


class _Slot:
    """One process, started when it is first needed."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        # The current folder is no place for modules (see `jq.base.system.child`).
        self.environment = {
            "PYTHONSAFEPATH": "1",
            "JAXQ_XLA": "here",  # where it crashes, another process takes its place
            **_MEMORY,
            **dict.fromkeys(_THREADS, str(threads)),
        }
        self._pool: Any = None

    def run(self, payload: Payload, number: int, item: Any) -> tuple[int, Result]:
        done: tuple[int, Result] = self._submit(run_job, payload, number, item).result()
        return done

    def begin(self, modules: Sequence[str]) -> None:
        if self._pool is None:
            self._submit(_import, modules)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Starts the process where there is none. A worker of somebody's pool is a daemon, which
        may have no children, since those would outlive it: ours end with their parent."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, timeout=IDLE, initializer=_begin, initargs=(os.getpid(),), env=self.environment
            )
        caller = multiprocessing.current_process()
        daemon = caller.daemon
        if daemon:
            caller.daemon = False
        try:
            return self._pool.submit(function, *arguments)
        finally:
            if daemon:
                caller.daemon = True

    def end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, kill_workers=True)


_idle: list[_Slot] = []
_lock = threading.Lock()


def _taken(count: int) -> list[_Slot]:
    """Slots with each its share of the cores, of those that wait as far as there are any."""
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    with _lock:
        found = [slot for slot in _idle if slot.threads == threads][:count]
        for slot in found:
            _idle.remove(slot)
    return found + [_Slot(threads) for _ in range(count - len(found))]


@atexit.register
def _end_idle() -> None:
    for slot in _idle:
        slot.end()


def _import(modules: Sequence[str]) -> None:
    for name in ("jq.ir.oracle.xla", *modules):
        importlib.import_module(name)
    versions()


def _begin(parent: int) -> None:
    """Prepares a new process: an interrupt from the keyboard reaches all processes, and the first
    ends the others; they end as well where it could not. A work that is opened is no leak."""
    if hasattr(process_executor, LEAK):  # loky ends who grew since its first job, and says so
        setattr(process_executor, LEAK, sys.maxsize)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
