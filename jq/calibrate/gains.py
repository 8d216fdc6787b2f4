"""How much the rows of products move the output, kept for the next pass that asks.

A gradient costs twice what running the model does, and every recovery pass needs the same one: the
passes before it leave the function as it is, and products at most scaled channel by channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

ROOM = 64 << 20  # bytes; what does not fit is found again
Found = Mapping[str, np.ndarray]


@dataclass
class Gains:
    """By op and number of the sample: the mean squared gradient of each row."""

    known: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    size: int = 0

    def of(self, names: list[str], sample: int, find: Callable[[], Found]) -> Found:
        """What is known of a sample, or found now if a name is missing."""
        if all((name, sample) in self.known for name in names):
            return {name: self.known[name, sample] for name in names}
        found = find()
        for name, rows in found.items():
            if (name, sample) not in self.known and self.size + rows.nbytes <= ROOM:
                self.known[name, sample] = rows
                self.size += rows.nbytes
        return found
