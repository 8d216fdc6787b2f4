"""Files that a command writes besides its result: refused before any work where they cannot be, and
what is there stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from jq.cli.app import main

MODULE = """func.func public @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %y = stablehlo.dot %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}"""

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("m.mlir").write_text(MODULE)
    return tmp_path


def compiled(*arguments: str) -> int:
    command = ["compile", "m.mlir", "-o", "out", "-p", "float", "--no-measure", "-q"]
    return main([*command, *arguments])


def refused(capsys: Captured, *arguments: str) -> str:
    """The one line that is said, with nothing written."""
    before = sorted(Path.cwd().rglob("*"))
    assert compiled(*arguments) == 2
    assert sorted(Path.cwd().rglob("*")) == before
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_pipeline_file_that_exists_is_kept(folder: Path, capsys: Captured) -> None:
    mine = Path("mine.toml")
    mine.write_text("# years of work")
    assert "mine.toml exists already" in refused(capsys, "--save-pipeline", "mine.toml")
    assert mine.read_text() == "# years of work"
    assert compiled("--save-pipeline", "mine.toml", "--force") == 0
    assert "[settings]" in mine.read_text() and Path("out/manifest.json").exists()


def test_a_pipeline_file_where_a_folder_is(folder: Path, capsys: Captured) -> None:
    Path("mine").mkdir()
    for force in ([], ["--force"]):
        assert "mine is a directory" in refused(capsys, "--save-pipeline", "mine", *force)


@pytest.mark.parametrize("name", ["new", "out/mine.toml", "other/../out/mine.toml"])
def test_a_pipeline_file_in_the_artifact(name: str, folder: Path, capsys: Captured) -> None:
    """It would be foreign there: the next `--force` refuses to delete it."""
    Path("other").mkdir()
    assert compiled() == 0
    capsys.readouterr()
    output = ("-o", "new") if name == "new" else ("--force",)
    assert f"{name} is in the artifact" in refused(capsys, "--save-pipeline", name, *output)


def test_a_pipeline_file_in_a_place_that_cannot_be_written(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jq.api.compile", None)  # before any work is done
    assert "cannot write into /proc" in refused(capsys, "--save-pipeline", "/proc/mine.toml")
    assert "cannot write into /proc" in refused(capsys, "-o", "/proc/out")
    assert "no such folder" in refused(capsys, "--save-pipeline", "none/mine.toml")


def test_a_shard_of_nothing(folder: Path, capsys: Captured) -> None:
    """As a variable of a shell that is not set: not all data, which it once meant."""
    for text in ("", "0/4", "5/4", "1", "/", "1/", "-1/4", "1/4/4", "1/4 ", "²/4"):
        assert main(["calibrate", "m.mlir", "-o", "r.json", f"--shard={text}", "-q"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "shard" in line and "I/N" in line
    assert not Path("r.json").exists()
