"""Timing and the inputs made up for it."""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import pytest

from jq.bench import MIN_RUNS, WARM_UP, Timing, measure, peak_rss_bytes, random_inputs
from jq.ir import TensorSpec


def test_timing_is_numpys_percentiles() -> None:
    timing = Timing.of([0.004, 0.001, 0.002, 0.003, 0.010])
    assert timing.median_ms == pytest.approx(3.0)
    assert timing.p90_ms == pytest.approx(7.6)  # 4 + 0.6 * (10 - 4), linear between ranks
    assert timing.min_ms == pytest.approx(1.0)
    assert timing.to_dict()["runs"] == 5
    assert timing.to_dict()["calls_per_second"] == pytest.approx(1000 / 3)


def test_calls_alternate() -> None:
    order: list[str] = []

    def called(name: str, seconds: float) -> None:
        order.append(name)
        time.sleep(seconds)

    slow, fast = measure([lambda: called("a", 0.003), lambda: called("b", 0.001)], seconds=0.05)
    assert slow.median_ms > 2.9
    assert slow.runs == fast.runs >= MIN_RUNS
    timed = order[2 * WARM_UP :]
    assert timed[::2] == ["a"] * slow.runs
    assert timed[1::2] == ["b"] * fast.runs


def test_a_slow_call_still_runs_often_enough() -> None:
    (timing,) = measure([lambda: time.sleep(0.002)], seconds=0.001)
    assert timing.runs == MIN_RUNS


def test_peak_memory_is_in_bytes() -> None:
    block = np.ones(256 << 20, np.uint8)
    assert block.nbytes < peak_rss_bytes() < 64 << 30


def test_random_inputs_fit_their_specs() -> None:
    specs = [
        TensorSpec("ids", (2, 5), "int32"),
        TensorSpec("mask", (3,), "bool"),
        TensorSpec("x", (4, 2), "bfloat16"),
        TensorSpec("scalar", (), "float32"),
    ]
    arrays = random_inputs(specs)
    assert [a.shape for a in arrays] == [s.shape for s in specs]
    assert [a.dtype for a in arrays] == [np.int32, np.bool_, ml_dtypes.bfloat16, np.float32]
    assert arrays[0].min() >= 0
    for first, again in zip(arrays, random_inputs(specs), strict=True):
        np.testing.assert_array_equal(first, again)
