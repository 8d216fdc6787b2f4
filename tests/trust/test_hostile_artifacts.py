"""Artifacts, and files beside them, whose numbers, names and texts are out of all bounds."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jq.artifact.load import read_manifest
from jq.base.errors import UserError
from jq.base.npz import read, write
from jq.device.golden import INDEX, _difference, check_vectors, vectors
from jq.frontends.onnx.validate import refuse_twice
from tests.trust.artifacts import SAVED, copy_of, rehashed


def test_a_program_that_is_listed_many_times(tmp_path: Path) -> None:
    """Its files were read and hashed as often: 20,000 entries took half a minute."""
    manifest = json.loads((SAVED / "manifest.json").read_text())
    program = {"target": "a", "module": "model.vmfb", "dump": "program.mlir"}
    for more in ({}, {"dump": "other.mlir"}, {"module": "other.vmfb"}):
        manifest["programs"] = [program, program | more]
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(UserError, match="two programs of one file"):
            read_manifest(tmp_path)


@pytest.mark.parametrize("number", [-1, 0, True, 1.0, "1", None, 10**400])
def test_schema_versions_that_are_none(tmp_path: Path, number: Any) -> None:
    manifest = json.loads((SAVED / "manifest.json").read_text()) | {"schema_version": number}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="schema"):
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


@pytest.mark.parametrize(
    "text",
    ["x", "[]", "{}", "[" * 5000, *(f'{{"limit": {v}}}' for v in ('"x"', "NaN", "-1", "null"))],
)
def test_an_index_of_vectors_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(UserError, match=r"no index of golden vectors .*index\.json"):
        check_vectors(tmp_path, tmp_path)


@pytest.mark.parametrize("descr", ["'<f4'", "'<U0'", "'|V0'"])
def test_what_a_device_wrote_is_read_no_further_than_it_fits(tmp_path: Path, descr: str) -> None:
    """A header of a few bytes claimed any memory, and so did a file that is mostly a hole."""
    path, want = tmp_path / "out.npy", np.zeros((4, 8), np.float32)
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': ({1 << 50},)}}".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
    found = _difference(path, want)
    assert found is not None and ("no array" in found["got"] or str(1 << 50) in found["got"])
    os.truncate(path, 1 << 40)
    found = _difference(path, want)
    assert found is not None and found["got"] == f"{1 << 40} bytes"
    np.save(path, want)
    assert _difference(path, want) is None


@pytest.mark.parametrize("given", ["1000000x1000000xi8", "1000000xi8"])
def test_an_integer_program_of_terabytes_is_not_begun(tmp_path: Path, given: str) -> None:
    """It ended with "out of memory", as if the machine was at fault."""
    dims = "[0, 1]" if given.count("x") > 1 else "[1]"
    large = "tensor<1000000x1000000xi8>"
    text = f"""func.func public @main(%x: tensor<{given}>) -> {large} {{
      %0 = stablehlo.broadcast_in_dim %x, dims = {dims} : (tensor<{given}>) -> {large}
      %1 = stablehlo.add %0, %0 : {large}
      return %1 : {large}
    }}"""
    artifact = copy_of(tmp_path)
    (artifact / "integer.mlirbc").write_text(text)
    manifest = json.loads((artifact / "manifest.json").read_text())
    manifest["files"]["integer.mlirbc"] = {}
    (artifact / "manifest.json").write_text(json.dumps(manifest))
    rehashed(artifact)
    with pytest.raises(UserError, match=r"take \d.* GiB, and this machine has"):
        vectors(artifact, tmp_path / "vectors")
    assert not (tmp_path / "vectors").exists()
