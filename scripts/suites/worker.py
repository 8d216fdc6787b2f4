"""Cases run in processes of their own, which may crash or hang; what they import is imported once.

A batch is compiled as one program, which takes a quarter of the time; where that fails, it is
halved until the cases that are at fault stand alone.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

from suites.outcome import CRASHED, Outcome

Case = TypeVar("Case")
# Of a batch, an outcome a case; None where that takes a smaller batch.
Judge = Callable[[Sequence[Case]], list[Outcome | None]]
_SPAWN = multiprocessing.get_context("spawn")  # XLA has threads, which no fork survives
_LIFE = 40  # batches; what XLA and IREE keep goes with the process


def run(
    cases: Sequence[Case],
    judge: Judge[Case],
    identify: Callable[[Case], tuple[str, str]],
    *,
    together: int = 16,
    jobs: int = 1,
    timeout: float = 300.0,
) -> Iterator[Outcome]:
    """The outcome of every case, in no order.

    Args:
        judge: runs a batch; a function of a module, so that another process can have it.
        identify: group and name of a case, for one whose process died.
        together: cases in a batch.
        timeout: seconds for a batch.
    """
    waiting = [list(cases[i : i + together]) for i in range(0, len(cases), together)][::-1]
    workers = [_Worker(judge) for _ in range(jobs)]
    try:
        while waiting or any(worker.batch for worker in workers):
            for worker in workers:
                if waiting and not worker.batch:
                    worker.give(waiting.pop())
            busy = [worker for worker in workers if worker.batch]
            ready = wait([worker.pipe for worker in busy], timeout)
            for worker in busy:
                if ready and worker.pipe not in ready:
                    continue
                batch, found = worker.take()
                if len(batch) == 1 and found is None:
                    yield Outcome(*identify(batch[0]), CRASHED, worker.end)
                    continue
                found = found or [None] * len(batch)
                yield from filter(None, found)
                left = [case for case, one in zip(batch, found, strict=True) if one is None]
                half = (len(left) + 1) // 2
                waiting += [part for part in (left[half:], left[:half]) if part]
    finally:
        for worker in workers:
            worker.stop()


class _Worker(Generic[Case]):
    """A process that judges one batch after another."""

    def __init__(self, judge: Judge[Case]) -> None:
        self._judge, self.end = judge, ""
        self.batch: list[Case] = []
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs, self._judge), daemon=True)
        self._process.start()
        theirs.close()
        self._given = 0

    def give(self, batch: list[Case]) -> None:
        if self._given == _LIFE:
            self.stop()
            self._start()
        self.batch, self._given = batch, self._given + 1
        self.pipe.send(batch)

    def take(self) -> tuple[list[Case], list[Outcome | None] | None]:
        """The batch and its outcomes; None where the process died or has not answered."""
        batch, self.batch = self.batch, []
        try:
            if self.pipe.poll():
                return batch, self.pipe.recv()
            self.end = "did not finish"
        except (EOFError, ConnectionResetError):
            self._process.join()
            self.end = f"exit code {self._process.exitcode}"
        self.stop()
        self._start()
        return batch, None

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection, judge: Judge[Case]) -> None:
    os.environ["JAXQ_XLA"] = "here"  # a crash of XLA is to be seen
    while True:
        try:
            pipe.send(judge(pipe.recv()))
        except EOFError:
            return
