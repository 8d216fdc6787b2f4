"""Gains: how far the rows of products move the output, kept for the next pass that asks.

A gradient costs twice what running the model does, and some seconds to compile; every recovery pass
needs the same one. The passes before it leave the function as it is, and products at most scaled
channel by channel.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from jq.artifact.keys import digest

ROUNDS = 1  # random directions of the output per batch
ROOM = 64 << 20  # bytes; what does not fit is found again
Found = Mapping[str, np.ndarray]


class Gradient(Protocol):
    """Rows by op, for inputs, a seed and a number of rounds; `axes` has every op that it finds."""

    @property
    def axes(self) -> Mapping[str, tuple[int, ...]]: ...

    def __call__(self, inputs: Sequence[np.ndarray], seed: int, rounds: int) -> Found: ...


@dataclass
class Gains:
    """By op and number of the sample: the mean squared gradient of each row."""

    known: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    size: int = 0
    gradient: Gradient | None = None
    names: frozenset[str] = frozenset()  # that the gradient finds, or cannot find

    def of(
        self,
        names: Collection[str],
        sample: int,
        inputs: Sequence[np.ndarray],
        make: Callable[[], Gradient | None],
    ) -> Found:
        """Cached gains of a sample, else computed; missing where no gradient exists. A gradient
        is made where there is none for all of `names`."""
        if all((name, sample) in self.known for name in names):
            return {name: self.known[name, sample] for name in names}
        if not self.names.issuperset(names):
            self.gradient = make()
            self.names = frozenset({*names, *(self.gradient.axes if self.gradient else ())})
        found = self.gradient(inputs, sample, ROUNDS) if self.gradient else {}
        for name, rows in found.items():
            if (name, sample) not in self.known and self.size + rows.nbytes <= ROOM:
                self.known[name, sample] = rows
                self.size += rows.nbytes
        return {name: found[name] for name in names if name in found}

    def forget_gradient(self) -> None:
        """The next one is made for the program that asks: what is found does not depend on whether
        a pass before it ran, or was taken from an earlier run."""
        self.gradient, self.names = None, frozenset()

    def digest(self) -> str:
        """All cached gains."""
        return digest([[key, self.known[key]] for key in sorted(self.known)])

    def packed(self, before: Collection[tuple[str, int]]) -> dict[str, np.ndarray]:
        """The gains that have become known since, by sample and name in one word."""
        known = self.known.items()
        return {
            f"{sample} {name}": v for (name, sample), v in known if (name, sample) not in before
        }

    def unpack(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes in the gains that an earlier run found."""
        for key, rows in arrays.items():
            sample, _, name = key.partition(" ")
            if (name, int(sample)) not in self.known:
                self.known[name, int(sample)] = rows
                self.size += rows.nbytes
