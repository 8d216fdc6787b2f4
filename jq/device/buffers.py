"""Buffers: places of tensors on the chip, each from the unit that makes it to the last reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Buffer:
    """A tensor: `first` and `last` are the units that make it and read it last, both included."""

    name: str
    bytes: int
    first: int
    last: int
    offset: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.bytes

    def meets(self, other: Buffer) -> bool:
        """True if both are needed at one time."""
        return self.first <= other.last and other.first <= self.last


def placed(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Greedy by size: the largest first, each at the lowest offset that is free all its time."""
    done: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda b: (-b.bytes, b.first)):
        offset = 0
        for other in sorted((o for o in done if o.meets(buffer)), key=lambda o: o.offset):
            if offset + buffer.bytes <= other.offset:
                break
            offset = max(offset, other.end)
        done.append(replace(buffer, offset=offset))
    return sorted(done, key=lambda b: b.first)


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """Bytes that are needed at one time, however they are placed."""
    times = {b.first for b in buffers}
    return max((sum(b.bytes for b in buffers if b.first <= t <= b.last) for t in times), default=0)
