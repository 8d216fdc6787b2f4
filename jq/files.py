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
    check_parent(path)
    if path.is_dir():
        raise UserError(f"{path} is a directory", hint="name a file")
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
    """Refuses an output whose folder does not exist, before any work is done for it."""
    if not path.absolute().parent.is_dir():
        raise UserError(f"no such folder: {path.parent}", hint="make it first")


def umask() -> int:
    """Permissions that new files go without."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
