"""Permutations of lanes across vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from iree.compiler import ir

from jq.kernels.build.builder import Builder
from jq.kernels.build.values import Values, lanes_of

T = TypeVar("T")


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


def batches(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Parts of up to `most` items, whose numbers are powers of two."""
    parts = []
    while items:
        count = min(most, 1 << (len(items).bit_length() - 1))
        parts.append(items[:count])
        items = items[count:]
    return parts
