"""Permutations of lanes across vectors."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from jq.kernels.builder import Builder
from jq.kernels.values import lanes_of


def transpose(b: Builder, rows: Sequence[ir.Value]) -> list[ir.Value]:
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
