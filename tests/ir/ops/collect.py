"""Many examples of a strategy at once, for tests that compile them in one module."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def collect(strategy: SearchStrategy[T], count: int) -> list[T]:
    """`count` examples: one of five, since neighbours are variants."""
    found: list[T] = []

    @settings(
        max_examples=5 * count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def keep(example: T) -> None:
        found.append(example)

    keep()
    return found[::5][:count]
