"""Executors: the places where jobs run, as `run_jobs` knows them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Executor:
    """Attributes:
    options: of `joblib.parallel_config`.
    task: what joblib runs for a job's number and item (`joblib.delayed`).
    alive: whether it still answers.
    together: how many jobs are given at once where the backend returns none before all are done.
    """

    options: dict[str, Any]
    task: Callable[[int, Any], Any]
    alive: Callable[[], bool]
    together: int = 0
