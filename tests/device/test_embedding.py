"""`jaxq embed`: the parts of a C program fit together; linking them needs IREE's sources."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import jq
from jq.artifact.keys import StoredFile
from jq.artifact.manifest import Manifest
from jq.base.errors import UserError
from jq.cli.app import main
from jq.device.embedding import _rows
from jq.ir import TensorSpec


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As much of one as is read: the integer level of two inputs and two outputs."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((16, 8)).astype(np.float32)
    x, n = rng.standard_normal((2, 16)).astype(np.float32), np.arange(3, dtype=np.int32)
    model = jq.Model(lambda p, x, n: (x @ p, n.sum()), weight, (x, n), calibration=[(x, n)])
    found = jq.rewrite(model, pipeline="int8-static-integer-only", target="npu-int8")["integer"]
    folder = tmp_path_factory.mktemp("artifact")
    with (folder / "integer.mlirbc").open("wb") as file:
        found.materialize().operation.write_bytecode(file)
    files = {"integer.mlirbc": StoredFile.of(folder / "integer.mlirbc")}
    (folder / "manifest.json").write_text(Manifest(files=files).model_dump_json())
    return folder


def test_the_parts_fit(artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "program"
    triple = ["--triple", "aarch64-unknown-linux-gnu"]
    assert main(["embed", str(artifact), "-o", str(folder), *triple, "--json", "-q"]) == 0
    names = {f["name"]: f["bytes"] for f in json.loads(capsys.readouterr().out)["files"]}
    assert set(names) == {
        *("CMakeLists.txt", "main.c", "program.h"),
        *("module.c", "library.h", "library.o"),
    }
    assert (folder / "library.o").read_bytes()[18:20] == b"\xb7\0"  # aarch64
    header = (folder / "program.h").read_text()
    defined = dict(re.findall(r"#define (\w+) (\S+)", header))
    assert f"{defined['QUERY']}(" in (folder / "library.h").read_text()
    code = (folder / "module.c").read_text()
    assert f"iree_status_t {defined['CREATE']}(" in code
    module, _, function = defined["ENTRY"].strip('"').partition(".")
    assert f'"{function}"' in code and defined["CREATE"] == f"{module}_create"
    assert "{IREE_HAL_ELEMENT_TYPE_FLOAT_32, 128, 2, {2, 16}}" in header
    assert "{IREE_HAL_ELEMENT_TYPE_SINT_32, 12, 1, {3}}" in header
    assert "{IREE_HAL_ELEMENT_TYPE_FLOAT_32, 64, 2, {2, 8}}" in header
    assert "{IREE_HAL_ELEMENT_TYPE_SINT_32, 4, 0, {0}}" in header
    used = set(re.findall(r"\b[A-Z]{4,}\b", (folder / "main.c").read_text()))
    assert {"QUERY", "CREATE", "ENTRY", "INPUTS", "OUTPUTS"} <= used


def test_what_is_refused(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = str(tmp_path / "new")
    assert main(["embed", str(artifact), "-o", str(artifact)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["embed", str(tmp_path), "-o", new]) == 2
    assert "is not an artifact" in capsys.readouterr().err
    assert main(["embed", str(artifact), "-o", new, "--iree-flag=--no-such-flag"]) == 2
    assert "no flag --no-such-flag" in capsys.readouterr().err
    shutil.copytree(artifact, longer := tmp_path / "longer")
    with (longer / "integer.mlirbc").open("ab") as file:
        file.write(b"\0")
    assert main(["embed", str(longer), "-o", new]) == 2
    assert "bytes instead of" in capsys.readouterr().err
    assert not Path(new).exists()


def test_names_of_a_file_are_no_code() -> None:
    hostile = TensorSpec("x\nint evil(void);\\", (1,), "float32")
    assert "evil" in (row := _rows([hostile]))
    assert "\n" not in row and not row.endswith("\\")
    assert row.index("//") < row.index("evil")


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        jq.embed(tmp_path / "none", tmp_path / "new")
    assert not list(tmp_path.iterdir())
