"""Whatever call of the system fails while something is written: it is the old one or the new one,
whole, nothing lies beside it, and what is kept between runs can be used.

`scripts/suite.py faults` does the same with whole compiles, calibrations and searches.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jq.base import npz
from jq.base.errors import JqError
from jq.driver.loading import load
from jq.mixed_precision.evaluate import State
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import Ranges
from tests.trust.artifacts import SAVED, copy_of, rehashed

ALLOWED = (JqError, OSError, MemoryError)


@dataclass
class Work:
    """Attributes:
    before: makes what is there; `run` replaces it.
    state: reads it, whole, as a value that says which it is.
    """

    before: Callable[[Path], None]
    run: Callable[[Path], object]
    state: Callable[[Path], Any]


def _old_artifact(folder: Path) -> None:
    path = copy_of(folder) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pipeline": "old"}))
    rehashed(path.parent)


def _artifact(folder: Path) -> str:
    return load(folder / "artifact").manifest.pipeline  # its checksums are right


def _ranges(low: float) -> Ranges:
    return Ranges({"a:0": Range(low, 1.0)}, 1)


WORK = {
    "artifact": Work(
        _old_artifact, lambda folder: load(SAVED).save(folder / "artifact", force=True), _artifact
    ),
    "ranges": Work(
        lambda folder: _ranges(-1).save(folder / "r.json"),
        lambda folder: _ranges(-2).save(folder / "r.json"),
        lambda folder: Ranges.load(folder / "r.json").sites["a:0"].low,
    ),
    "results": Work(
        lambda folder: npz.write(folder / "o.npz", {"a": np.zeros(3000)}),
        lambda folder: npz.write(folder / "o.npz", {"a": np.ones(3000)}),
        lambda folder: set(npz.read(folder / "o.npz")["a"].tolist()),
    ),
    "search": Work(
        lambda folder: State(folder / "s.json", "key").put("a", 1.0),
        lambda folder: State(folder / "s.json", "key").put("b", 2.0),
        lambda folder: State(folder / "s.json", "key").values,
    ),
}


@pytest.mark.parametrize("way", ["full", "memory", "killed"])
@pytest.mark.parametrize("name", WORK)
def test_old_or_new(name: str, way: str, tmp_path: Path) -> None:
    from suites.faults import fault, points_of

    work = WORK[name]
    (tmp_path / "first").mkdir()
    work.before(tmp_path / "first")
    old = work.state(tmp_path / "first")
    points = points_of(lambda: work.run(tmp_path / "first"))
    new = work.state(tmp_path / "first")
    assert old != new and {"open", "write", "fsync"} <= {*points}
    seen = set()
    for at, point in enumerate(points):
        folder = tmp_path / str(at)
        folder.mkdir()
        work.before(folder)
        names = {path.name for path in folder.iterdir()}
        error = fault(lambda f=folder: work.run(f), at, way)
        assert error is None or isinstance(error, SystemExit if way == "killed" else ALLOWED), error
        seen.add(str(work.state(folder)))
        assert str(work.state(folder)) in (str(old), str(new)), f"{point} ({at})"
        if way != "killed":
            assert {path.name for path in folder.iterdir()} == names, f"{point} ({at})"
        work.run(folder)
        assert work.state(folder) == new
    assert str(old) in seen
