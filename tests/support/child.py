"""A process of its own for what may crash: then one test has failed, and pytest goes on."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def _prepare() -> None:
    """The suites of `scripts/` can be imported; XLA compiles references without optimizing."""
    sys.path.insert(0, str(SCRIPTS))
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"


class Child:
    """It serves many tests, and so imports JAX, frameworks and JAX's cases once."""

    def __init__(self) -> None:
        self._pool = self._start()

    @staticmethod
    def _start() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _prepare)

    def call(self, function: Callable[..., Any], *args: Any, limit: float | None = None) -> Any:
        """The result of a module's function; `BrokenProcessPool` where the process has died, or was
        ended after `limit` seconds. In its place there is then another."""
        found = self._pool.submit(function, *args)
        try:
            wait([found], limit)
            if not found.done():
                for process in multiprocessing.active_children():
                    if process.pid in self._pool._processes:
                        process.kill()
            return found.result()
        except BrokenProcessPool:
            self._pool = self._start()
            raise

    def stop(self) -> None:
        self._pool.shutdown()
