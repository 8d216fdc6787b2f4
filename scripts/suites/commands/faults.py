"""Fails every call by which a compile, a calibration and a search write, map or start something.

    scripts/suite.py faults                      # each point, by a full disk and without memory
    scripts/suite.py faults --work compile --way killed    # the process ends at each of them

After each fault the same work runs again, with the caches as the fault left them, and must give
what an undisturbed run gives. Artifacts, ranges and results: `tests/trust/test_faults.py`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import jq
from jq.base.errors import JqError
from jq.mixed_precision.run import search
from suites.faults import KILLED, WAYS, ended, fault, points_of

RNG = np.random.default_rng(0)
PARAMS = {name: RNG.standard_normal((32, 32)).astype(np.float32) for name in "ab"}
INPUT = RNG.standard_normal((8, 32)).astype(np.float32)
MODEL = jq.Model(lambda p, x: x @ p["a"] @ p["b"], PARAMS, (INPUT,), calibration=[(INPUT,)])


def compiles(folder: Path) -> dict[str, bytes]:
    """The artifact's files."""
    out = jq.compile(MODEL, "int8-static").save(folder / "out", force=True)
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def calibrates(folder: Path) -> bytes:
    jq.calibrate(MODEL).save(folder / "ranges.json")
    return (folder / "ranges.json").read_bytes()


def searches(folder: Path) -> bytes:
    found = search(MODEL, ["size<=0.9"], state=folder / "state.json", samples=2)
    return found.save(folder / "mixed.toml").read_bytes()


WORK: dict[str, Callable[[Path], object]] = {
    "compile": compiles,
    "calibrate": calibrates,
    "search": searches,
}


LIMIT = 300.0  # seconds of a process that is to end
IMPORTED = ["jq.mixed_precision.run", "suites.faults"]


def disturbed(work: Callable[[Path], object], at: int, way: str, right: object) -> str:
    """The damage after a fault; empty, as it should be."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(folder)
        if way == "killed":
            there = partial(_elsewhere, work, folder)
            error: BaseException | None = ended(there, at, IMPORTED, LIMIT)
            if not isinstance(error, SystemExit) or error.code != KILLED:
                return f"it was to end: {error}"
            _use(folder)
        else:
            _use(folder)
            error = fault(partial(work, folder / "work"), at, way)
        if not isinstance(error, JqError | OSError | MemoryError | SystemExit | type(None)):
            return f"{type(error).__name__}: {error}"
        left = [p.name for p in (folder / "temporary").iterdir() if "crash" not in p.name]
        beside = [p.name for p in (folder / "work").iterdir() if p.name.startswith(".")]
        if way != "killed" and (left or beside):
            return f"left: {[*left, *beside]}"
        again = work(folder / "work")
        return "" if again == right else "the work that was resumed gives something else"


def _elsewhere(work: Callable[[Path], object], folder: Path) -> None:
    _use(folder)
    work(folder / "work")


def _make(folder: Path) -> None:
    """Caches, temporary files and the results, each in a folder of its own."""
    for name in ("cache", "temporary", "work"):
        (folder / name).mkdir()


def _use(folder: Path) -> None:
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    tempfile.tempdir = str(folder / "temporary")


def progress(line: str) -> None:
    """A terminal has one line that changes; a file a line for each point, so that one that hangs
    is known."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="\r", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def main(
    work: Annotated[list[str] | None, typer.Option(help="compile, calibrate, search.")] = None,
    way: Annotated[list[str] | None, typer.Option(help="full, memory, killed.")] = None,
    every: Annotated[int, typer.Option(help="Only every n-th point.")] = 1,
    first: Annotated[int, typer.Option(help="The first point.")] = 0,
) -> None:
    wrong = 0
    for name in work or WORK:
        with tempfile.TemporaryDirectory() as folder:
            _make(Path(folder))
            _use(Path(folder))
            points = points_of(partial(WORK[name], Path(folder) / "work"))
        tempfile.tempdir = None
        with tempfile.TemporaryDirectory() as folder:
            _make(Path(folder))
            _use(Path(folder))
            right = WORK[name](Path(folder) / "work")
        tempfile.tempdir = None
        for each in way or [w for w in WAYS if w != "killed"]:
            chosen = range(first, len(points), every)
            for at in chosen:
                if reason := disturbed(WORK[name], at, each, right):
                    wrong += 1
                    print(f"{name}, {each} at {points[at]} ({at}): {reason}", flush=True)
                tempfile.tempdir = None
                progress(f"{name}, {each}: point {at + 1} of {len(points)}, {points[at]}")
            print(f"{name}, {each}: {len(chosen)} of {len(points)} points", flush=True)
    print(f"{wrong} wrong")
    raise typer.Exit(1 if wrong else 0)
