"""Processes of this machine that do a job at a time; one that ends is replaced.

Each is a pool of one process (joblib's loky): in a pool of several, the end of one would end all.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from typing import Any

from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from jq.errors import JqError
from jq.jobs.work import Payload, Result, run_job

TRIES = 3  # of a job whose process ends
_THREADS = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Processes:
    """Called by as many threads as there are processes, with the number and item of a job."""

    def __init__(self, count: int, payload: Payload) -> None:
        threads = max(1, len(os.sched_getaffinity(0)) // count)
        self._slots: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        self._all = [_Slot(payload, threads) for _ in range(count)]
        for slot in self._all:
            self._slots.put(slot)

    def __call__(self, number: int, item: Any) -> tuple[int, Result]:
        slot = self._slots.get()
        try:
            return slot.run(number, item)
        finally:
            self._slots.put(slot)

    def stop(self) -> None:
        """Ends all processes, whatever they do."""
        for slot in self._all:
            slot.stopped = True
        for slot in self._all:
            slot.end()


class _Slot:
    """One process, started when it is first needed."""

    def __init__(self, payload: Payload, threads: int) -> None:
        self.payload, self.stopped = payload, False
        # The current folder is no place for modules (see `jq.system.child`).
        self.environment = {"PYTHONSAFEPATH": "1", **dict.fromkeys(_THREADS, str(threads))}
        self._pool: Any = None

    def run(self, number: int, item: Any) -> tuple[int, Result]:
        for _ in range(TRIES):
            try:
                done: tuple[int, Result] = (
                    self._started().submit(run_job, self.payload, number, item).result()
                )
                return done
            except BrokenProcessPool:
                self.end()
        reason = f"its process ended {TRIES} times"
        raise JqError(f"job {number} cannot be done: {reason}", hint="is there enough memory?")

    def _started(self) -> Any:
        if self.stopped:
            raise JqError("the jobs were stopped")
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, initializer=_begin, initargs=(os.getpid(),), env=self.environment
            )
        return self._pool

    def end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, kill_workers=True)


def _begin(parent: int) -> None:
    """In a new process: an interrupt from the keyboard reaches all processes, and the first one
    ends the others; they end as well where it could not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
