"""Exports for Ethos-U in Arm's own compiler: nothing stays on the CPU."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import jq
from tests.device.test_exporting import small

pytest.importorskip("ethosu", reason="Arm's compiler Vela is not installed")
pytestmark = pytest.mark.usefixtures("quick_xla")


@pytest.mark.parametrize("device", ["ethos-u55-256", "ethos-u65-512", "ethos-u85-256"])
def test_every_operator_runs_on_the_device(device: str, tmp_path: Path) -> None:
    path = tmp_path / "m.tosa"
    jq.export(small(), path, target=device.rpartition("-")[0])
    command = ["-m", "ethosu.vela", str(path), "--accelerator-config", device]
    said = subprocess.run(
        [sys.executable, *command, "--output-dir", str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    counted = re.search(r"CPU operators = (\d+).*NPU operators = (\d+)", said, re.S)
    assert counted is not None, said
    assert counted[1] == "0"
    assert int(counted[2]) > 0
