"""A cache of one program's moments, and of weights that were solved with them, for the next plan.

Candidates of a search ask for the same moments, and many for the same codes. Answers depend on what
is asked alone, never on what was asked before: an answer that is kept brings along the gains that
were found on the way, and a solution is found by a digest of all that it was solved with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jq.artifact.keys import digest
from jq.artifact.store import Arrays
from jq.ir import Program
from jq.planning.moments.gains import Gains, Moments

ROOM = 1 << 30  # bytes of moments that are kept
Found = Mapping[str, Moments]


@dataclass
class MomentsCache:
    """It knows one program, with one set of calibration data, at a time."""

    _program: bytes = b""
    _weights: list[Any] = field(default_factory=list)
    _found: dict[str, tuple[Found, Arrays]] = field(default_factory=dict)
    _solved: dict[str, Arrays] = field(default_factory=dict)

    def of(self, program: Program, question: str, gains: Gains, make: Callable[[], Found]) -> Found:
        """The result of `make`, which may add to the gains, kept for the same question."""
        if not self.is_of(program):
            self._found = {}  # before there are others: they may be large
            self.attach(program)
        key = f"{question} {gains.digest()}"
        if key in self._found:
            found, new = self._found[key]
            gains.unpack(new)
            return found
        if sum(map(_size, (f for f, _ in self._found.values()))) > ROOM:
            self._found = {}
        before = set(gains.known)
        found = make()
        self._found[key] = found, gains.packed(before)
        return found

    def solved(self, how: str, arrays: Arrays, solve: Callable[[], Arrays]) -> Arrays:
        """The result of `solve` for these arrays, kept for equal ones."""
        key = digest(how, arrays)
        if key not in self._solved:
            self._solved[key] = solve()
        return self._solved[key]

    def is_of(self, program: Program) -> bool:
        weights = list(program.weights.values())
        same = len(weights) == len(self._weights) and program.bytecode() == self._program
        return same and all(a is b for a, b in zip(weights, self._weights, strict=True))

    def attach(self, program: Program) -> None:
        """Ties what is known to this program: a copy in another process has arrays of its own."""
        self._program, self._weights = program.bytecode(), list(program.weights.values())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_program": b"", "_weights": [], "_solved": {}}


def _size(found: Found) -> int:
    return sum(m.gram.nbytes + m.rows.nbytes for m in found.values())
