"""Standard streams that are closed, full or read by nobody, and names that only bytes can say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jq.base.system.files import written_whole
from jq.base.system.folders import new_folder, replacing
from tests.trust.artifacts import copy_of

LISTS = ("list", "formats")
CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")
LONG = ("x" * 251 + ".npz", "中" * 83 + ".npz")  # of 255 and 253 bytes


def shell(line: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`$@` is `jaxq` with the arguments."""
    command = [sys.executable, "-m", "jq", *arguments]
    return subprocess.run(
        ["bash", "-c", line, "bash", *command], capture_output=True, text=True, cwd=cwd, timeout=120
    )


@pytest.mark.parametrize("closed", CLOSED)
def test_closed_streams(closed: str) -> None:
    done = shell(f'"$@" {closed}', *LISTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert shell(f'"$@" {closed}', "inspect", "no-such").returncode == 2


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", arg0=np.ones((2, 8), np.int8))
    copy_of(tmp_path)
    outputs = []
    for name, closed in (("a.npz", ""), ("b.npz", "<&- >&- 2>&-")):
        arguments = ("run", "artifact", "--inputs", "in.npz", "--outputs", name)
        done = shell(f'"$@" {closed}', *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        with np.load(tmp_path / name) as file:
            outputs.append({key: file[key].tobytes() for key in file})
    assert outputs[0] == outputs[1]


def test_whoever_reads_may_stop() -> None:
    done = shell('"$@" | true; exit ${PIPESTATUS[0]}', *LISTS)
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [LISTS, ("--help",)])
def test_a_full_device(arguments: tuple[str, ...]) -> None:
    done = shell('"$@" > /dev/full', *arguments)
    assert (done.returncode, done.stderr) == (2, "jaxq: error: No space left on device\n")


def test_errors_that_cannot_be_written() -> None:
    """Their code says it all the same."""
    assert shell('"$@" 2> /dev/full', "inspect", "no-such").returncode == 2


def test_a_folder_that_was_removed(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    line = f'cd gone; rmdir ../gone; PYTHONPATH={Path.cwd()} "$@"'
    done = shell(line, "compile", "jq.models:nothing", "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", LONG)
def test_names_as_long_as_can_be(name: str, tmp_path: Path) -> None:
    with written_whole(tmp_path / name) as file:
        file.write_text("a", encoding="utf-8")
    assert (tmp_path / name).read_text(encoding="utf-8") == "a"
    for number, make in enumerate((new_folder, replacing)):
        place = tmp_path / str(number) / name
        place.parent.mkdir()
        with make(place) as folder:
            (folder / "a").touch()
        assert os.listdir(place.parent) == [name]


def test_a_failed_write_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full: '.*results'"), written_whole(tmp_path / "results"):
        raise OSError(28, "full")
