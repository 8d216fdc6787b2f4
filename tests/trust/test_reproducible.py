"""The same input gives the same artifact, byte by byte: in another process, folder and order, by
another user, at another time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jq.cli.app import main

MODEL = """
import numpy as np
import jq

rng = np.random.default_rng(0)
layers = {n: rng.standard_normal((32, 32)).astype(np.float32) for n in "abc"}
x = rng.standard_normal((8, 32)).astype(np.float32)


def fn(p, x):
    for w in p.values():
        x = x @ w + x
    return {"sum": x, "least": x.min()}


model = jq.Model(fn, layers, (x,), calibration=[(x,)])
"""


@pytest.mark.usefixtures("quick_xla")
def test_two_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there", "there/temporary"):
        (tmp_path / name).mkdir()
    for name in ("here", "there"):
        (tmp_path / name / "m.py").write_text(MODEL)
    command = ["compile", "m.py:model", "-p", "int8-static", "--no-cache", "-o", "out", "-q"]
    command += ["--emit", "qdq", "--emit", "integer", "--emit", "target"]
    other = {"PYTHONHASHSEED": "1", "TMPDIR": str(tmp_path / "there/temporary")}
    other |= {"USER": "other", "LOGNAME": "other", "HOME": str(tmp_path / "there")}
    other |= {"TZ": "Asia/Tokyo", "LC_ALL": "C", "COLUMNS": "40"}
    subprocess.run(
        [sys.executable, "-c", "from jq.cli import main; main()", *command],
        cwd=tmp_path / "there",
        env=os.environ | other,
        check=True,
        timeout=300,
    )
    monkeypatch.chdir(tmp_path / "here")
    assert main(command) == 0
    made = [
        {p.name: p.read_bytes() for p in (tmp_path / n / "out").iterdir()}
        for n in ("here", "there")
    ]
    assert {"model.vmfb", "manifest.json", "program.mlir", "qdq.mlirbc"} <= made[0].keys()
    assert [k for k in made[0] if made[0][k] != made[1].get(k)] == []
    assert made[0].keys() == made[1].keys()
