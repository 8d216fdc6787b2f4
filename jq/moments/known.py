"""Moments kept for the next plan of one program: candidates of a search ask for the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jq.ir import Program
from jq.moments.readers import Moments

Found = Mapping[str, Moments]


@dataclass
class KnownMoments:
    """What was asked for last, by the program, its weights and the question; for data that stay."""

    _asked: Any = None
    _weights: list[Any] = field(default_factory=list)
    _found: Found = field(default_factory=dict)

    def of(self, program: Program, question: str, make: Callable[[], Found]) -> Found:
        asked, weights = (program.bytecode(), question), list(program.weights.values())
        same = asked == self._asked and len(weights) == len(self._weights)
        if not (same and all(a is b for a, b in zip(weights, self._weights, strict=True))):
            self._found = {}  # before there are others: they may be large
            self._found = make()
            self._asked, self._weights = asked, weights
        return self._found
