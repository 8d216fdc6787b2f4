from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place for what a failed compile keeps, where pytest cleans up."""
    folder = tmp_path.with_name(f"{tmp_path.name}-temporary")
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
