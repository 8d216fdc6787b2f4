"""Artifacts, and files beside them, whose numbers, names and texts are out of all bounds."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from jq.artifact.load import read_manifest
from jq.errors import UserError
from jq.npz import read, write
from jq.onnx.order import refuse_twice
from tests.trust.artifacts import SAVED


def test_a_program_that_is_listed_many_times(tmp_path: Path) -> None:
    """Its files were read and hashed as often: 20,000 entries took half a minute."""
    manifest = json.loads((SAVED / "manifest.json").read_text())
    program = {"target": "a", "module": "model.vmfb", "dump": "program.mlir"}
    for more in ({}, {"dump": "other.mlir"}, {"module": "other.vmfb"}):
        manifest["programs"] = [program, program | more]
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(UserError, match="two programs of one file"):
            read_manifest(tmp_path)


def test_the_name_of_what_is_there_twice_is_found_at_once(tmp_path: Path) -> None:
    """Each was looked for among all before it."""
    keys = [*map(str, range(100_000)), "99999"]
    (tmp_path / "manifest.json").write_text("{" + ",".join(f'"{key}": 1' for key in keys) + "}")
    start = time.process_time()
    with pytest.raises(UserError, match="the key '99999' occurs twice"):
        read_manifest(tmp_path)
    with pytest.raises(UserError, match="'99999' twice"):
        refuse_twice(keys, tmp_path)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("name", ["a\ud800", "a\0b", "x" * 65536])
def test_names_that_no_archive_holds(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out.npz"
    with pytest.raises(UserError, match=r"no array can be called .* rename the model's output"):
        write(path, {name: np.zeros(1)})
    assert not list(tmp_path.iterdir())
    write(path, {name[:1] * 65531: np.zeros(1)})
    assert list(read(path)) == [name[:1] * 65531]
