"""A work whose jobs say who did them, and end their worker when they are told to."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from sys import executable
from typing import Any

import numpy as np

from jq.artifact.jobs import Result, Work

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Squares(Work):
    """The square of an item. `folder` gets a file for each time that one is begun, and the process
    ends in the first `deaths` tries of an item in `fatal`."""

    folder: Path
    fatal: tuple[int, ...] = ()
    seconds: float = 0.0
    deaths: int = 1

    def open(self) -> Callable[[int], Result]:
        def square(item: int) -> Result:
            tries = len(list(self.folder.glob(f"{item}.*")))
            (self.folder / f"{item}.{tries}").write_text(str(os.getpid()))
            if item in self.fatal and tries < self.deaths:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(self.seconds)
            return {"square": np.array(item * item)}

        return square


def begun(folder: Path) -> dict[int, int]:
    """Number of times that each item was begun."""
    found: dict[int, int] = {}
    for path in folder.iterdir():
        number = int(path.stem)
        found[number] = found.get(number, 0) + 1
    return found


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[tuple[str, list[Popen[Any]]]]:
    """A Dask scheduler and its workers as processes: the address, and the processes."""
    from distributed import Client  # an extra

    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    where = ["--scheduler-file", str(folder / "scheduler.json"), "--no-dashboard"]
    common = {"cwd": folder, "env": environment, "stdout": DEVNULL, "stderr": DEVNULL}
    dask: list[str] = [executable, "-m", "dask"]
    scheduler = [*dask, "scheduler", *where, "--port", "0", "--host", "127.0.0.1"]
    worker = [*dask, "worker", *where, "--nthreads", "1", "--local-directory", str(folder)]
    running: list[Popen[Any]] = []
    try:
        running.append(Popen(scheduler, **common))  # type: ignore[call-overload]
        while not (folder / "scheduler.json").exists():
            assert running[0].poll() is None, "the scheduler ended"
            time.sleep(0.05)
        for _ in range(workers):
            running.append(Popen([*worker, "--no-nanny"], **common))  # type: ignore[call-overload]
        address = json.loads((folder / "scheduler.json").read_text())["address"]
        # However long they take to start here: commands wait some seconds for one.
        with Client(address, timeout=600, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=600)
        yield address, running
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()
