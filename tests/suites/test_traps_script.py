"""`scripts/traps.py` tells what is mended from what fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/traps.py"
TESTS = """
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


def run(folder: Path, right: bool) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(TESTS.format(right))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, str(SCRIPT), "--jax=", "--iree=", "--tests", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_outcomes(tmp_path: Path) -> None:
    done = run(tmp_path, right=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "mended: test_some::test_mended",
        "1 mended, 1 passed, 1 there",
    ]
    done = run(tmp_path, right=False)
    assert done.returncode == 1
    assert "failed: test_some::test_workaround" in done.stdout
