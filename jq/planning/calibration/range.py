"""The range of an activation: what a method chooses from what was observed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Smallest and largest value; `low <= high`, both finite."""

    low: float
    high: float

    def merge(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))
