"""Latency from processes of their own, and the inputs made up for it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from jq.base.errors import JqError, UserError
from jq.base.system.processor import peak_rss_bytes
from jq.ir import TensorSpec
from jq.iree.compiler import compile_module
from jq.reporting.benchmark.session import Job, Latency, Session, bench, measure, random_inputs
from jq.reporting.benchmark.worker import read_arrays, write_arrays

KEYS = {"median_ms", "p90_ms", "min_ms", "runs", "threads", "peak_rss_bytes"}

# A worker that sleeps instead of computing: what it takes is known.
SLEEPER = """
import sys, time
from jq.reporting.benchmark.worker import serve
serve(lambda: time.sleep(float(sys.argv[1])))
"""


def sleeper(seconds: float) -> list[str]:
    return [sys.executable, "-c", SLEEPER, str(seconds)]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    source = b"""func.func @main(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
      %y = stablehlo.exponential %x : tensor<8x64xf32>
      return %y : tensor<8x64xf32>
    }"""
    path = tmp_path_factory.mktemp("bench") / "model.vmfb"
    path.write_bytes(compile_module(source, keep_dump=False).vmfb)
    return Job(path, None, [np.ones((8, 64), np.float32)])


def test_figures_of_a_program(job: Job) -> None:
    (got,) = bench([job], seconds=0.1)
    assert 0 < got.min_ms <= got.median_ms <= got.p90_ms
    assert (got.threads, got.runs >= 10) == (1, True)
    assert 0 < got.baseline_rss_bytes <= got.peak_rss_bytes < 2 << 30
    document = got.to_dict()
    assert set(document) >= KEYS
    assert json.loads(json.dumps(document)) == document


def test_two_threads(job: Job) -> None:
    assert bench([job], threads=2, seconds=0.05)[0].threads == 2


def test_known_times_come_out() -> None:
    with Session(sleeper(0.004), 1) as slow, Session(sleeper(0.001), 1) as fast:
        results = measure([slow, fast], 0.2)
    assert 4 <= results[0].min_ms <= results[0].median_ms
    assert 1 <= results[1].min_ms < 4
    assert results[0].runs >= 10


def test_both_are_measured_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    run = Session.run

    def spy(self: Session, count: int, *, keep: bool = True) -> list[float]:
        if keep:
            turns.append(id(self))
        return run(self, count, keep=keep)

    monkeypatch.setattr(Session, "run", spy)
    with Session(sleeper(0.001), 1) as a, Session(sleeper(0.001), 1) as b:
        measure([a, b], 0.3)
    assert len(turns) >= 4
    assert turns == [id(a), id(b)] * (len(turns) // 2)


def test_percentiles_are_numpys() -> None:
    with Session(sleeper(0), 1) as session:
        session.times = [4.0, 1.0, 2.0, 3.0, 10.0]
        got = session.finish()
    assert (got.median_ms, got.min_ms, got.runs) == (3.0, 1.0, 5)
    assert got.p90_ms == pytest.approx(7.6)  # 4 + 0.6 * (10 - 4), linear between ranks
    assert got.calls_per_second == pytest.approx(1000 / 3)


def test_peak_memory_is_the_workers_own() -> None:
    block = np.ones(300 << 20, np.uint8)
    with Session(sleeper(0), 1) as session:
        session.run(1)
        got = session.finish()
    assert got.peak_rss_bytes < block.nbytes < peak_rss_bytes() < 64 << 30


def test_failures_are_one_line(job: Job, tmp_path: Path) -> None:
    with pytest.raises(JqError, match="expected 1 arguments"):
        bench([Job(job.module, None, [])])
    foreign = tmp_path / "foreign.vmfb"
    foreign.write_bytes(b"nothing of ours")
    with pytest.raises(JqError, match="measured process failed"):
        bench([Job(foreign, None, [])])
    with pytest.raises(UserError, match="threads"):
        bench([job], threads=0)


def test_a_worker_does_not_outlive_its_session() -> None:
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt), Session(sleeper(60), 1) as session:
        raise KeyboardInterrupt
    assert session.worker.poll() is not None
    assert time.perf_counter() - start < 10


def test_arrays_travel_as_they_are(tmp_path: Path) -> None:
    arrays = [
        np.arange(6, dtype=np.int8).reshape(2, 3),
        np.array(1.5, ml_dtypes.bfloat16),
        np.array([True, False]),
        np.empty((0, 3), np.float32),
    ]
    read = read_arrays(tmp_path, write_arrays(tmp_path, arrays))
    for a, b in zip(arrays, read, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


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


def test_latency_is_plain_data() -> None:
    figures = Latency(2.0, 3.0, 1.0, 10, 1, 1 << 20)
    assert figures.to_dict()["calls_per_second"] == 500.0
