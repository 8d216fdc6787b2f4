"""A cache directory that others may have written to is not used: native code is kept there."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

import jq
from jq.artifact.store import entries
from jq.base.system.folders import _of_this_process, cache_folder, make_private


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _of_this_process.cache_clear()
    return tmp_path / "jaxq"


def test_ours(root: Path) -> None:
    assert cache_folder("compiled") == root / "compiled"
    umask = os.umask(0)
    try:
        make_private(root / "compiled")
    finally:
        os.umask(umask)
    assert [p.stat().st_mode & 0o777 for p in (root, root / "compiled")] == [0o700, 0o700]
    assert cache_folder("compiled") == root / "compiled"
    root.parent.chmod(0o1777)  # as /tmp is: nobody can rename what is ours
    assert cache_folder("compiled") == root / "compiled"


@pytest.mark.parametrize("place", ["", "compiled", ".."])
def test_others_may_write(root: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    make_private(root / "compiled")
    (root / place).chmod(0o777)
    with caplog.at_level(logging.WARNING, "jq"):
        used = cache_folder("compiled")
    assert used != root / "compiled" and used.parent.stat().st_mode & 0o777 == 0o700
    assert cache_folder("compiled") == used
    (line,) = caplog.messages
    assert line.startswith(f"the cache directory {root} is not used: others may write to ")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_of_another_user(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_private(root / "compiled")
    os.chown(root, 12345, 12345)
    with caplog.at_level(logging.WARNING, "jq"):
        assert cache_folder("compiled") != root / "compiled"
    assert "belongs to another user" in caplog.text


def test_what_is_kept_there_is_not_run(root: Path) -> None:
    model = jq.Model(lambda p, x: x @ p["w"], {"w": np.eye(4, dtype=np.float32)}, (np.eye(4),))
    right = jq.compile(model, "float").vmfb
    (entry,) = (e.path for e in entries() if e.kind == "module")
    root.chmod(0o777)
    entry.write_bytes(b"of somebody else")
    assert jq.compile(model, "float").vmfb == right
    assert entry.read_bytes() == b"of somebody else"
