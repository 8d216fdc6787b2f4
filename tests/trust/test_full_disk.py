"""Disks that are full or read-only: one line that names the place, and nothing is left there."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jq.base.system.temporary import _remove_left, temporary_folder
from jq.cli.app import main
from jq.iree.compiler import compile_module
from jq.mixed_precision.evaluate import State
from tests.trust.artifacts import SAVED

MODULE = b"""func.func public @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = stablehlo.dot %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}"""


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes: to who writes it the disk is full, to a program that does
    not expect that it is the end."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("size", [len(MODULE) - 1, 4096], ids=["source", "result"])
def test_no_room_to_compile(size: int, temporary: Path) -> None:
    with at_most(size), pytest.raises(ValueError, match="cannot write to") as info:
        compile_module(MODULE)
    assert str(temporary) in str(info.value) and "TMPDIR" in str(info.value)
    assert not list(temporary.iterdir())


def commands(folder: Path) -> dict[str, list[str]]:
    return {
        "bench": ["bench", str(SAVED), "--seconds", "0.1"],
        "quickstart": ["quickstart"],
        "compile": ["compile", str(folder / "m.mlir"), "-o", str(folder / "out"), "--no-cache"],
    }


@pytest.mark.parametrize("name", ["bench", "quickstart", "compile"])
def test_no_folder_for_temporary_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where none of TMPDIR, /tmp and the current directory can be written."""
    (tmp_path / "m.mlir").write_bytes(MODULE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert main([*commands(tmp_path)[name], "-q"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the folder for temporary files" in line and "TMPDIR" in line


def test_a_failure_that_has_another_cause_stays_what_it_is(temporary: Path) -> None:
    with pytest.raises(FileNotFoundError, match="mine"), temporary_folder() as folder:
        (folder / "mine").read_bytes()


KILLED = """
import os, signal
from jq.base.system.temporary import temporary_folder
with temporary_folder() as folder:
    (folder / "file").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_later(temporary: Path) -> None:
    def folders() -> list[Path]:
        _remove_left.cache_clear()  # as in another process
        with temporary_folder() as folder:
            return sorted(p for p in temporary.iterdir() if p != folder)

    for _ in range(2):
        where = os.environ | {"TMPDIR": str(temporary)}
        assert (
            subprocess.run([sys.executable, "-c", KILLED], env=where, check=False).returncode == -9
        )
    killed, new = folders()  # their processes may only just have made them
    (own := temporary / f"{killed.name}.mine").mkdir()
    (link := temporary / ".jaxq-work-linked__").symlink_to(own)
    with temporary_folder() as alive:
        for old in (killed, own, link, alive):
            os.utime(old, (0, 0), follow_symlinks=False)
        assert folders() == sorted([alive, new, own, link])


def test_a_search_that_cannot_keep_its_measurements(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    places: dict[str, Callable[[], None]] = {
        "file/search/x.json": lambda: None,
        "folder": lambda: (tmp_path / "folder").mkdir(),
    }
    for name, prepare in places.items():
        prepare()
        state = State(tmp_path / name, "key")
        state.put("a", 1.0)
        state.put("b", 2.0)
        assert state.values == {"a": 1.0, "b": 2.0}
    assert [r.getMessage()[:24] for r in caplog.records] == ["measurements are not kept"[:24]] * 2
