"""Output files: written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jq.errors import UserError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block succeeds."""
    check_file(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_parent(path: Path) -> None:
    """Refuses an output whose folder does not exist or is read-only."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UserError(f"no such folder: {path.parent}", hint="make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"no permission to write into {path.parent}", hint="choose another folder")


def check_file(path: Path) -> None:
    """Refuses an output file that cannot be written there, before any work is done for it."""
    check_parent(path)
    if path.is_dir():
        raise UserError(f"{path} is a directory", hint="name a file")


def umask() -> int:
    """Permissions that new files go without."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_new(path: Path, *, force: bool = False) -> None:
    """Refuses an output file that exists already, unless it may be replaced."""
    check_file(path)
    if path.exists() and not force:
        raise UserError(f"{path} exists already", hint="choose another name, or give --force")
