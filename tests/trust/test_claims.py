"""A claim without evidence is not verified, and the exit code says so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jq.cli.app import main
from jq.driver.loading import load
from tests.trust.artifacts import copy_of, rehashed

PROGRAMS: dict[str, Callable[[str], str]] = {
    "nothing": lambda text: "",
    "an empty module": lambda text: "module {}\n",
    "another program": lambda text: text.replace("tensor<2x8xi8>)", "tensor<3x8xi8>)"),
    "no declaration": lambda text: text.replace("iree.abi.declaration", "iree.abi.other"),
}


def test_what_was_written_is_verified(tmp_path: Path) -> None:
    assert load(copy_of(tmp_path)).audit().verified
    assert main(["inspect", str(tmp_path / "artifact"), "-q"]) == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_shows_nothing(name: str, tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    path = folder / "program.mlir"
    changed = PROGRAMS[name](path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    rehashed(folder)
    audit = load(folder).audit()
    assert not audit.verified
    assert any("program.mlir" in w for w in audit.warnings)
    assert main(["inspect", str(folder), "-q"]) == 1


def test_a_claimed_weight_that_nothing_shows(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    (name,) = manifest["encodings"]
    claim = {**manifest["encodings"][name], "shape": [512, 512]}
    claim["parts"] = {"codes": {"dtype": "int8", "shape": [512, 512]}}
    manifest["encodings"]["more"] = claim
    (folder / "manifest.json").write_text(json.dumps(manifest))
    audit = load(folder).audit()
    assert not audit.verified
    assert any("more is claimed" in w and "neither it nor an equal" in w for w in audit.warnings)


def test_rehashed_is_what_an_attacker_does(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    rehashed(folder)
    noted = json.loads((folder / "manifest.json").read_text())["files"]["program.mlir"]
    assert noted["sha256"] == hashlib.sha256((folder / "program.mlir").read_bytes()).hexdigest()
