"""Drives worker processes and turns their times into figures."""

import json
import math
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from jq.base import JqError, Progress, UserError, silent, temporary_folder
from jq.base.guard.limits import require_memory
from jq.base.system.child import death, python_command
from jq.base.system.children import Child
from jq.ir import TensorSpec
from jq.reporting.benchmark.worker import write_arrays

WARM_UP = 3  # calls at least, and a tenth of the measuring time
LEAST, MOST = 10, 5000  # measured calls
BLOCK = 0.1  # seconds a program runs before the other one's turn


@dataclass(frozen=True)
class Job:
    """A compiled module, its parameter archive, and the inputs to call it with."""

    module: Path
    parameters: Path | None
    inputs: Sequence[np.ndarray]


@dataclass(frozen=True)
class Latency:
    """Figures of one program, from a process of its own. `peak_rss_bytes` is the whole process;
    `baseline_rss_bytes` is what it took before loading."""

    median_ms: float
    p90_ms: float
    min_ms: float
    runs: int
    threads: int
    peak_rss_bytes: int
    baseline_rss_bytes: int = 0
    load_ms: float = 0.0

    @property
    def calls_per_second(self) -> float:
        return 1e3 / self.median_ms if self.median_ms else float("inf")

    def to_dict(self) -> dict[str, Any]:
        """The document of `jaxq bench --json`."""
        return {**asdict(self), "calls_per_second": self.calls_per_second}


class Session(Child):
    """A running worker."""

    def __init__(self, command: Sequence[str], threads: int):
        super().__init__()
        self.threads = threads
        self.times: list[float] = []
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as we)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self.worker = self.start(command, **pipes, encoding="utf-8")

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._errors.close()

    def run(self, count: int, *, keep: bool = True) -> list[float]:
        """Milliseconds of `count` calls."""
        times: list[float] = self._ask(json.dumps({"runs": count}))["ms"]
        if keep:
            self.times += times
        return times

    def finish(self) -> Latency:
        """Ends the worker; figures over all kept calls."""
        assert self.worker.stdin is not None
        self.worker.stdin.close()
        facts = self._answer()
        self.worker.wait()
        median, p90 = np.percentile(self.times, (50, 90))
        return Latency(
            median_ms=float(median),
            p90_ms=float(p90),
            min_ms=min(self.times),
            runs=len(self.times),
            threads=self.threads,
            **facts,
        )

    def _ask(self, line: str) -> dict[str, Any]:
        assert self.worker.stdin is not None
        try:
            self.worker.stdin.write(line + "\n")
            self.worker.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.worker.stdout is not None
        line = self.worker.stdout.readline()
        if not line:
            raise self._failure()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise JqError(f"the program failed while being measured: {answer['error']}")
        return answer

    def _failure(self) -> JqError:
        code = self.worker.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        if code < 0:
            how, hint = death(code)
            return JqError(f"the measured process {how}", hint=hint)
        return JqError(f"the measured process failed: {lines[-1] if lines else code}")


def measure(
    sessions: Sequence[Session], seconds: float, progress: Progress = silent
) -> list[Latency]:
    """Alternates between the sessions until each has run for `seconds`."""
    blocks = []
    for s in sessions:
        spent, count = 0.0, 0
        while count < WARM_UP or spent < 100 * seconds:  # milliseconds
            spent += sum(s.run(1, keep=False))
            count += 1
        blocks.append(max(1, int(1e3 * BLOCK * count / max(spent, 1e-6))))
    start, whole = time.perf_counter(), seconds * len(sessions)
    while (spent := time.perf_counter() - start) < whole or _fewest(sessions) < LEAST:
        progress("measure", min(spent / whole, 1.0))
        for s, block in zip(sessions, blocks, strict=True):
            s.run(block)
        if _fewest(sessions) >= MOST:
            break
    return [s.finish() for s in sessions]


def _fewest(sessions: Sequence[Session]) -> int:
    return min(len(s.times) for s in sessions)


def bench(
    jobs: Sequence[Job], *, threads: int = 1, seconds: float = 2.0, progress: Progress = silent
) -> list[Latency]:
    """Latency of each job, in fresh processes, all alive at once and run in turns.

    Args:
        threads: 1 runs on the calling thread, more on that many workers.
        seconds: measuring time of each job; at least 10 calls are made."""
    if threads < 1:
        raise UserError(f"threads must be at least 1, got {threads}")
    with ExitStack() as stack:
        sessions = []
        for job in jobs:
            command = worker_command(stack.enter_context(temporary_folder()), job, threads)
            sessions.append(stack.enter_context(Session(command, threads)))
        return measure(sessions, seconds, progress)


def worker_command(folder: Path, job: Job, threads: int) -> list[str]:
    """Writes what a worker needs into `folder`; the command that starts it."""
    document = {
        "module": str(job.module.resolve()),
        "parameters": str(job.parameters.resolve()) if job.parameters else None,
        "threads": threads,
        "inputs": write_arrays(folder, [np.asarray(x) for x in job.inputs]),
    }
    path = folder / "job.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return python_command("jq.reporting.benchmark.worker", str(path))


def random_inputs(specs: Sequence[TensorSpec], seed: int = 0) -> list[np.ndarray]:
    """Inputs of the right shapes and types: floats from a normal distribution, small integers that
    are not negative (as indices are), random booleans; `UserError` where memory is too small."""
    # Numbers are drawn in 64 bits.
    require_memory(sum(8 * math.prod(spec.shape) for spec in specs), "random inputs")
    rng = np.random.default_rng(seed)
    return [_random(rng, spec) for spec in specs]


def _random(rng: np.random.Generator, spec: TensorSpec) -> np.ndarray:
    dtype = np.dtype(getattr(ml_dtypes, spec.dtype, spec.dtype))
    if dtype.kind == "b":
        return rng.random(spec.shape) < 0.5
    if dtype.kind in "iu" or "int" in dtype.name:
        return rng.integers(0, 8, spec.shape).astype(dtype)
    return rng.standard_normal(spec.shape).astype(dtype)
