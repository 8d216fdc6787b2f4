"""Calls of several programs in turns, timed by the processor's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

TURN, ROUNDS = 0.02, 25  # seconds of a program in a round, and rounds
Call = Callable[[], Any]


def turns(calls: tuple[Call, ...]) -> np.ndarray:
    """Microseconds of a call of each in each round, [rounds, calls]."""
    counts, times = [], [[] for _ in calls]
    for call in calls:
        call()
        start = time.process_time()
        for _ in range(5):
            call()
        counts.append(max(1, int(5 * TURN / (time.process_time() - start))))
    for _ in range(ROUNDS):
        for call, count, found in zip(calls, counts, times, strict=True):
            call()
            start = time.process_time()
            for _ in range(count):
                call()
            found.append(1e6 * (time.process_time() - start) / count)
    return np.stack(times, 1)
