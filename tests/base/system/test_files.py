"""Output files are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jq.artifact.save import check_output
from jq.base.errors import UserError
from jq.base.system.files import check_file, check_folder, written_whole


def test_takes_its_place_when_done(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    with written_whole(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
    (plain := tmp_path / "plain").touch()  # its rights are those of any file
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")

    def interrupted() -> None:
        with written_whole(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_folder_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"), written_whole(tmp_path / "a/b"):
        pass
    with pytest.raises(UserError, match="is a directory"), written_whole(tmp_path):
        pass


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    """Nor a device: as root, `-o /dev/null` would make a file of it."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a pipe, a device"), written_whole(tmp_path / "pipe"):
        pass
    assert (tmp_path / "pipe").is_fifo()


def test_links_in_a_circle_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for check in (check_file, check_folder):
        with pytest.raises(UserError, match="symbolic links"):
            check(tmp_path / "a")
    assert (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("check", [check_file, check_folder, check_output])
def test_a_folder_that_cannot_be_written(check: Callable[[Path], None]) -> None:
    """Root has all rights in /proc, and can make nothing there."""
    with pytest.raises(UserError, match="cannot write into /proc: "):
        check(Path("/proc/out"))
