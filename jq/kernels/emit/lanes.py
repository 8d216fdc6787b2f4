"""Permutations of lanes across vectors."""

from collections.abc import Sequence
from typing import TypeVar

from iree.compiler import ir

from jq.kernels.emit.builder import Builder
from jq.kernels.emit.values import Values, lanes_of
from jq.kernels.machine.isa import CHAINS

T = TypeVar("T")


def interleave(b: Builder, rows: Values) -> ir.Value:
    """Vectors of i8 codes as one: lane c, then row."""
    n, count = lanes_of(rows[0]), len(rows)
    joined = b.join(rows)
    order = [row * n + lane for lane in range(n) for row in range(count)]
    return joined if count == 1 else b.shuffle(joined, joined, order)


def transpose(b: Builder, rows: Values) -> list[ir.Value]:
    """n vectors of n lanes (a power of two): lane i of result j is lane j of row i."""
    rows, n = list(rows), lanes_of(rows[0])
    distance = n // 2
    while distance:
        low = [i if not i & distance else n + i - distance for i in range(n)]
        high = [i + distance if not i & distance else n + i for i in range(n)]
        for i in range(n):
            if i & distance:
                continue
            a, c = rows[i], rows[i + distance]
            rows[i], rows[i + distance] = b.shuffle(a, c, low), b.shuffle(a, c, high)
        distance //= 2
    return rows


class Chains:
    """Float sums along rows in an order that does not depend on how many lanes a vector has.
    Element i is added to chain i modulo `CHAINS`, and chains are joined in a fixed tree. Where a
    vector holds fewer, several take turns. A sum may end in anybody's turn: the tree joins the same
    ones. `least` is for what adds so many vectors at a time."""

    def __init__(self, lanes: int, least: int = 1) -> None:
        self.lanes, self.vectors = lanes, max(least, CHAINS // lanes)

    def start(self, b: Builder) -> list[ir.Value]:
        """The vectors of one sum, to be carried along."""
        return [b.f32(0.0, self.lanes)] * self.vectors

    def add(
        self, b: Builder, sums: Sequence[ir.Value], values: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """The sums after the next vectors of the row; the first is the one whose turn it is."""
        for value in values:
            first, *rest = sums
            sums = [*rest, b.add(first, value)]
        return list(sums)

    def joined(self, b: Builder, sums: Sequence[ir.Value]) -> ir.Value:
        """The whole sum, in every lane."""
        sums = list(sums)
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [b.add(x, y) for x, y in zip(sums[:half], sums[half:], strict=True)]
        return b.reduce(sums[0], b.add)


def batches(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Parts of up to `most` items, whose numbers are powers of two."""
    parts = []
    while items:
        count = min(most, 1 << (len(items).bit_length() - 1))
        parts.append(items[:count])
        items = items[count:]
    return parts
