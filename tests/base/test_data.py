"""Pipelines and targets are found in a clone and in an installed package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jq.base.errors import UserError
from jq.base.system.folders import data_dir, data_file, data_names

ROOT = Path(__file__).resolve().parents[2]


def test_a_wheel_carries_them_and_finds_them(tmp_path: Path) -> None:
    build = "import sys, hatchling.build as b; b.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    find = (
        "import jq.base.system.folders as d; print(d.__file__); print(*d.data_names('pipelines'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", find], cwd=installed, check=True, capture_output=True, text=True
    )
    where, names = done.stdout.splitlines()
    assert Path(where).is_relative_to(installed)
    assert names.split() == data_names("pipelines")


def test_names_and_paths(tmp_path: Path) -> None:
    for kind in ("pipelines", "targets"):
        for name in data_names(kind):
            assert data_file(kind, name) == data_dir(kind) / f"{name}.toml"
    own = tmp_path / "mine.toml"
    with pytest.raises(UserError, match=r"no such file.*mine\.toml"):
        data_file("targets", str(own))
    own.touch()
    assert data_file("targets", str(own)) == own
    with pytest.raises(UserError, match="unknown pipeline 'nothing'; known: "):
        data_file("pipelines", "nothing")
