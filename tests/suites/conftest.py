"""The suites of `scripts/` can be imported here, and run in one process that may crash."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="session", autouse=True)
def _scripts() -> Iterator[None]:
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


def _quick_xla() -> None:
    """XLA compiles references and what initializes layers without optimizing."""
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"


class Child:
    """A process of its own, for all tests: it imports frameworks and JAX's cases once."""

    def __init__(self) -> None:
        self._pool = self._start()

    @staticmethod
    def _start() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _quick_xla)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._pool.submit(function, *args).result()

    def judge(self, judge: Callable[..., Any], batch: Sequence[Any]) -> list[Any]:
        """Outcomes of a batch; where it fails as a whole, of each case for itself."""
        try:
            found = self.call(judge, batch)
        except BrokenProcessPool:
            self._pool = self._start()
            found = [None]
        if None not in found:
            return found
        from suites import worker

        return list(worker.run(batch, judge, lambda case: ("", str(case)), together=len(batch)))

    def stop(self) -> None:
        self._pool.shutdown()


@pytest.fixture(scope="session")
def child(_scripts: None) -> Iterator[Child]:
    made = Child()
    yield made
    made.stop()
