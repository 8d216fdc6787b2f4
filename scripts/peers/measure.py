"""Runs the contenders of a case in turns, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from jq.reporting.benchmark.worker import write_arrays
from peers.build import Built
from peers.case import Arrays

TURN_MS = 60.0  # of a contender in one round, about
MOST = 400  # calls of a turn


@dataclass
class Runner:
    """A built program in its worker."""

    built: Built
    process: Worker
    index: int
    calls: int = 1  # of a turn
    times: list[float] = field(default_factory=list)

    def run(self, calls: int) -> list[float]:
        times: list[float] = self.process.ask({"run": self.index, "calls": calls})["ms"]
        return times

    def settle(self) -> None:
        """Loads the program and finds how many calls make a turn."""
        self.process.ask({"load": self.index})
        spent = min(self.run(1) + self.run(1))
        spent = min(self.run(max(1, min(20, int(TURN_MS / spent)))))
        self.calls = max(1, min(MOST, int(TURN_MS / spent)))

    def figures(self) -> dict[str, Any]:
        once = np.array(self.times) / self.built.repeats
        return {
            "best_ms": float(once.min()),
            "median_ms": float(np.median(once)),
            "p90_ms": float(np.percentile(once, 90)),
            "runs": len(once),
        }


class Worker:
    """A process that holds programs of one runtime."""

    def __init__(self, job: Path):
        folders = [str(Path(__file__).resolve().parent.parent), *sys.path]
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as we)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "peers.worker", str(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))},
        )

    def ask(self, request: dict[str, int]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _ended(self) -> RuntimeError:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return RuntimeError(f"the process ended ({code}): {lines[-1] if lines else ''}"[:300])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()


def measure(
    programs: Sequence[Built], threads: int, rounds: int
) -> tuple[list[Runner], dict[str, str]]:
    """Times of every program, and why some have none.

    Every round gives each program a turn, beginning with another one each time, so that a slow
    moment of the machine hits all alike.
    """
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        runners = []
        for built in programs:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jaxq-peers-")))
            process = Worker(_job(folder, built, threads))
            stack.callback(process.close)
            runner = Runner(built, process, 0)
            try:
                runner.settle()
                runners.append(runner)
            except RuntimeError as error:
                failed[built.contender.name] = str(error)
        for i in range(rounds if runners else 0):
            first = i % len(runners)
            for runner in runners[first:] + runners[:first]:
                runner.times += runner.run(runner.calls)
    return runners, failed


def _job(folder: Path, built: Built, threads: int) -> Path:
    inputs: Arrays = [np.asarray(x) for x in built.inputs]
    program = {
        "runtime": built.contender.runtime,
        "path": str(built.path.resolve()),
        "options": dict(built.contender.options),
        "inputs": {"folder": str(folder), "arrays": write_arrays(folder, inputs)},
    }
    path = folder / "job.json"
    path.write_text(json.dumps({"threads": threads, "programs": [program]}))
    return path
