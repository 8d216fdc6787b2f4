"""Many calls of several artifacts from several threads at once: every result has the bits of the
first one, and memory does not grow.

    scripts/suite.py calls                      # 100,000 calls from 8 threads
    scripts/suite.py calls --calls 1000000 --threads 16
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import jq

PIPELINES = ("float", "int8-weight-only", "int8-dynamic", "int8-static", "int4-weight-only")
INPUTS = 16  # of each artifact
GROWTH = 32 << 20  # bytes; what the allocator keeps of a thread's


def built() -> list[jq.CompiledModel]:
    rng = np.random.default_rng(0)
    weight = {"w": rng.standard_normal((64, 32)).astype(np.float32)}
    x = rng.standard_normal((4, 64)).astype(np.float32)
    model = jq.Model(lambda p, x: x @ p["w"], weight, (x,), calibration=[(x,)])
    return [jq.compile(model, pipeline) for pipeline in PIPELINES]


def rss() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def wrong(models: list[jq.CompiledModel], calls: int, threads: int) -> int:
    """Number of calls, of so many, that gave other bits than the same call alone."""
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((4, 64)).astype(np.float32) for _ in range(INPUTS)]
    right = [[np.asarray(m(x)).tobytes() for x in inputs] for m in models]

    def work(thread: int) -> int:
        draw, bad = np.random.default_rng(thread), 0
        for _ in range(calls // threads):
            m, i = int(draw.integers(len(models))), int(draw.integers(INPUTS))
            bad += np.asarray(models[m](inputs[i])).tobytes() != right[m][i]
        return bad

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(work, range(threads)))


def main(
    calls: Annotated[int, typer.Option(help="In all.")] = 100_000,
    threads: Annotated[int, typer.Option(help="At once.")] = 8,
) -> None:
    models = built()
    bad = wrong(models, calls // 10, threads)  # from here on memory is all there
    before, start = rss(), time.perf_counter()
    bad += wrong(models, calls - calls // 10, threads)
    grown, spent = rss() - before, time.perf_counter() - start
    print(f"{calls} calls, {threads} threads, {len(models)} artifacts: {bad} with other bits")
    print(f"{spent:.1f} s, memory grew by {grown / 2**20:.1f} MiB")
    raise typer.Exit(1 if bad or grown > GROWTH else 0)
