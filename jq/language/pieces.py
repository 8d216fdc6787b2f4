"""Tokens of sequences, cut into pieces that there are programs for."""

from functools import cache
from typing import Any

import numpy as np

from jq.base.errors import UserError


def rows_of(tokens: Any, batch: int) -> list[np.ndarray]:
    """The tokens of each sequence, i32."""
    nested = isinstance(tokens, (list, tuple)) and any(np.ndim(row) for row in tokens)
    given = tokens if nested else np.asarray(tokens, np.int32).reshape(batch, -1)
    rows = [np.asarray(row, np.int32).reshape(-1) for row in given]
    if len(rows) != batch:
        raise UserError(f"{len(rows)} sequences are given, the model takes {batch} at once")
    return rows


@cache
def cheapest(left: int, costs: tuple[tuple[int, float], ...]) -> int:
    """The first of the sizes whose programs take in `left` tokens for the least cost together.

    Examples:
        >>> cheapest(5, ((1, 1.0), (4, 1.7), (16, 3.35)))
        4
    """

    def cost(n: int) -> tuple[float, int]:
        return min((own + least[max(0, n - size)], -size) for size, own in costs)

    least = [0.0]
    for n in range(1, left + 1):
        least.append(cost(n)[0])
    return -cost(left)[1]
