"""`scripts/traps.py` tells what is mended from what fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/traps.py"
TESTS = """
import os
import time

import pytest


@pytest.mark.xfail(reason="a defect that is there", strict=True)
def test_there():
    assert False


@pytest.mark.xfail(reason="a defect that is mended", strict=True)
def test_mended():
    pass


def test_workaround():
    assert {0}
"""


ENDS = """

@pytest.mark.xfail(reason="a defect that is there", strict=True)
def test_crashed():
    os.abort()


def test_endless():
    time.sleep(300)


def test_later():
    pass
"""


def run(folder: Path, right: bool, more: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(TESTS.format(right) + more)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        str(SCRIPT),
        "--jax=",
        "--iree=",
        "--limit=10",
        "--tests",
        str(folder),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_outcomes(tmp_path: Path) -> None:
    done = run(tmp_path, right=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "mended: test_some.py::test_mended",
        "1 mended, 1 passed, 1 there",
    ]
    done = run(tmp_path, right=False)
    assert done.returncode == 1
    assert "failed: test_some.py::test_workaround" in done.stdout


def test_one_that_crashes_or_does_not_end_is_an_outcome(tmp_path: Path) -> None:
    done = run(tmp_path, right=True, more=ENDS)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "mended: test_some.py::test_mended",
        "crashed: test_some.py::test_crashed",
        "endless: test_some.py::test_endless",
        "1 crashed, 1 endless, 1 mended, 2 passed, 1 there",
    ]
