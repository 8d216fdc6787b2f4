"""Golden vectors replay bit for bit in NumPy, and a fault in one op's output is named."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jq
from jq.cli.app import main
from jq.device.replay_ops import OPS
from tests.device.against_planning import _steps

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits network."""
    folder = tmp_path_factory.mktemp("digits") / "out"
    settings = {"recovery": False}
    pipeline = "int8-static-integer-only"
    model = jq.models.digits_cnn
    compiled = jq.compile(model, pipeline, "npu-int8", emit="integer", settings=settings)
    compiled.save(folder)
    return folder


@pytest.fixture(scope="module")
def written(artifact: Path) -> Path:
    folder = artifact.parent / "vectors"
    assert main(["vectors", str(artifact), "-o", str(folder), "-q"]) == 0
    return folder


def test_numpy_alone_replays_every_case(written: Path) -> None:
    index = json.loads((written / "index.json").read_text())
    assert [op["op"] for op in index["ops"]].count("convolution") == 3
    assert index["left_out"] == [] and "ties" in index["rounding"]
    # No module of ours is read: the folder is all that there is.
    command = [sys.executable, "-E", "-s", str(written / "replay.py"), str(written)]
    assert len((written / "replay.py").read_text().splitlines()) <= 30
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = run.stdout.splitlines()
    assert len(lines) == 4 * len(index["ops"]) and all(line.startswith("same") for line in lines)
    outputs = [written / case["output"] for op in index["ops"][1:4] for case in op["cases"]]
    ends = {int(np.load(path).max()) for path in outputs}
    assert 127 in ends  # saturation


def test_what_a_device_wrote(artifact: Path, written: Path, capsys) -> None:
    assert main(["vectors", str(artifact), "--check", str(written), "-q"]) == 0
    op = json.loads((written / "index.json").read_text())["ops"][2]
    path = written / op["cases"][3]["output"]
    whole = np.load(path)
    broken = whole.copy()
    broken[1, 2, 3, 4] ^= 1
    np.save(path, broken)
    capsys.readouterr()
    try:
        assert main(["vectors", str(artifact), "--check", str(written), "--json", "-q"]) == 1
        (row,) = json.loads(capsys.readouterr().out)["different"]
        assert (row["name"], row["op"], row["case"]) == (op["name"], "convolution", "random")
        assert row["index"] == [1, 2, 3, 4]
        assert (row["expected"], row["got"]) == (whole[1, 2, 3, 4], broken[1, 2, 3, 4])
        path.unlink()
        assert main(["vectors", str(artifact), "--check", str(written), "-q"]) == 1
        assert "no such file" in capsys.readouterr().out
        np.save(path, whole)
        for damaged in (b"", path.read_bytes()[:-7], b"\x93NUMPY\x01"):
            path.write_bytes(damaged)
            assert main(["vectors", str(artifact), "--check", str(written), "-q"]) == 1
            assert "no array of numbers" in capsys.readouterr().out
    finally:
        np.save(path, whole)


def test_tables_softmax_and_normalizations(tmp_path: Path) -> None:
    model = _steps("gelu", "layer_norm", "softmax", "divide", "join_strided", "mean", "turn")
    compiled = jq.compile(
        model, "int8-static-integer-only", "npu-int8", [model.example_inputs], emit="integer"
    )
    compiled.save(tmp_path / "out")
    index = jq.vectors(tmp_path / "out", tmp_path / "vectors")
    assert index["left_out"] == []
    run = [sys.executable, "-E", "-s", "replay.py"]
    found = subprocess.run(
        run, cwd=tmp_path / "vectors", capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stdout


def test_what_is_refused(artifact: Path, written: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "there").mkdir()
    for arguments, text in {
        ("-o", str(tmp_path / "there")): "exists already",
        (): "give -o DIR or --check",
        ("--check", str(tmp_path)): "index.json",
    }.items():
        assert main(["vectors", str(artifact), *arguments]) == 2
        assert text in capsys.readouterr().err
    for folder in ("bare", "lost", "changed"):
        (tmp_path / folder).mkdir()
        shutil.copy(artifact / "manifest.json", tmp_path / folder)
    stored = json.loads((artifact / "manifest.json").read_text())
    del stored["files"]["integer.mlirbc"]
    (tmp_path / "bare" / "manifest.json").write_text(json.dumps(stored))
    changed = bytearray((artifact / "integer.mlirbc").read_bytes())
    changed[len(changed) // 2] ^= 1  # a weight: still a program
    (tmp_path / "changed" / "integer.mlirbc").write_bytes(changed)
    for folder, text in {
        "bare": "holds no integer level; compile it with --emit integer",
        "lost": "no such file",
        "changed": "integer.mlirbc is damaged: its checksum differs",
        "there": "there is not an artifact",
        "nowhere": "no such artifact",
    }.items():
        assert main(["vectors", str(tmp_path / folder), "-o", str(tmp_path / "new")]) == 2
        assert text in capsys.readouterr().err and not (tmp_path / "new").exists()
    assert main(["vectors", str(tmp_path / "changed"), "--check", str(written)]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_large_ops_are_left_out(artifact: Path, tmp_path: Path) -> None:
    index = jq.vectors(artifact, tmp_path / "small", limit=0.01)
    assert index["ops"] and all("--limit 0.01" in row["reason"] for row in index["left_out"])


def test_the_page_of_ops_has_them_all() -> None:
    page = (ROOT / "docs" / "reference" / "integer-ops.md").read_text()
    first = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", " ".join(first))) == set(OPS)


def test_functions_that_composites_name_go_along(tmp_path: Path) -> None:
    """An error function between two products is a composite: it is left out with its reason."""
    params = dict(zip("ab", np.random.default_rng(0).normal(size=(2, 16, 16)), strict=True))

    def forward(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jax.nn.gelu(x @ p["a"], approximate=False) @ p["b"]

    params = {name: array.astype(np.float32) for name, array in params.items()}
    model = jq.Model(forward, params, (np.ones((4, 16), np.float32),))
    jq.compile(model, "int8-dynamic", emit="integer").save(tmp_path / "out")
    assert main(["vectors", str(tmp_path / "out"), "-o", str(tmp_path / "v"), "-q"]) == 0
    index = json.loads((tmp_path / "v" / "index.json").read_text())
    assert any("erf" in row["reason"] for row in index["left_out"])
    assert "dot_general" in [row["op"] for row in index["ops"]]


def test_a_scalar_is_padded() -> None:
    """Graph 910047 of `scripts/suite.py differential`: there is no axis to pad."""
    none: dict[str, list[int]] = {f"edge_padding_{end}": [] for end in ("low", "high")}
    step = {**none, "interior_padding": [], "shape": []}
    assert OPS["pad"](step, np.float32(3), np.float32(0)) == 3


def test_the_least_integer_is_divided() -> None:
    """Graph 201325 of `scripts/suite.py differential`: its magnitude is no int8."""
    least, by = np.full(4, -128, np.int8), np.array([6, -6, 1, -128], np.int8)
    assert OPS["divide"]({}, least, by).tolist() == [-21, 21, -128, 1]
