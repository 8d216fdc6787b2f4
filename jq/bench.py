"""How long calls take, and how much memory the process needed."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import ml_dtypes
import numpy as np

from jq.ir import TensorSpec

WARM_UP = 3  # calls that are not counted: pages are faulted in, buffers allocated
MIN_RUNS = 5  # also when one call takes longer than the time given


@dataclass(frozen=True)
class Timing:
    """Wall time per call in milliseconds, over `runs` calls."""

    median_ms: float
    p90_ms: float
    min_ms: float
    runs: int

    @staticmethod
    def of(seconds: Sequence[float]) -> Timing:
        ms = np.asarray(seconds) * 1e3
        median, p90 = np.percentile(ms, (50, 90))
        return Timing(float(median), float(p90), float(ms.min()), len(ms))

    def to_dict(self) -> dict[str, Any]:
        """The fields, and calls per second at the median."""
        return {**asdict(self), "calls_per_second": 1e3 / self.median_ms}


def measure(
    calls: Sequence[Callable[[], object]],
    seconds: float = 5.0,
    progress: Callable[[str, float | None], None] = lambda stage, share: None,
) -> list[Timing]:
    """Times several calls in alternation, so that a slow moment of the machine hits all alike.

    Runs for about `seconds` in all, and every call at least `MIN_RUNS` times.
    """
    for call in calls:
        for _ in range(WARM_UP):
            call()
    times: list[list[float]] = [[] for _ in calls]
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or len(times[0]) < MIN_RUNS:
        progress("measure", min(spent / seconds, 1.0))
        for call, own in zip(calls, times, strict=True):
            before = time.perf_counter()
            call()
            own.append(time.perf_counter() - before)
    return [Timing.of(own) for own in times]


def peak_rss_bytes() -> int:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def random_inputs(specs: Sequence[TensorSpec], seed: int = 0) -> list[np.ndarray]:
    """Inputs of the right shapes and types: floats from a normal distribution, small integers
    that are not negative (as indices are), random booleans."""
    rng = np.random.default_rng(seed)
    return [_random(rng, spec) for spec in specs]


def _random(rng: np.random.Generator, spec: TensorSpec) -> np.ndarray:
    dtype = np.dtype(getattr(ml_dtypes, spec.dtype, spec.dtype))
    if dtype.kind == "b":
        return rng.random(spec.shape) < 0.5
    if dtype.kind in "iu" or "int" in dtype.name:
        return rng.integers(0, 8, spec.shape).astype(dtype)
    return rng.standard_normal(spec.shape).astype(dtype)
