"""Folders for temporary files, which a process that is killed does not leave for ever."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from jq.base.errors import JqError, UserError

_WORK = ".jaxq-work-"  # the start of the names of temporary folders, which nobody would type
_NEW = 600  # seconds
_ROOM = 1 << 20  # bytes; a disk with less is as good as full


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for as long as the block runs. Where that fails and the disk is full or read-only,
    a `UserError` says so, whatever the failure looked like."""
    try:
        _remove_left(tempfile.gettempdir())
        folder = Path(tempfile.mkdtemp(prefix=_WORK))
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _no_room("the folder for temporary files", error) from error
    try:
        _lock(handle)
        yield folder
    except (OSError, JqError):
        check_room(folder)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _lock(handle: int) -> bool:
    """Locks a folder for as long as its process lives; False where another has locked it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # or where the file system has no locks
        return False
    return True


@cache
def _remove_left(root: str) -> None:
    """Removes what killed processes left: no one locks it. A new folder may not be locked yet."""
    for folder in Path(root).glob(f"{_WORK}????????"):
        with suppress(OSError):
            if folder.lstat().st_mtime < time.time() - _NEW:
                handle = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
                if _lock(handle):
                    shutil.rmtree(folder, ignore_errors=True)
                os.close(handle)


def _no_room(place: str, error: OSError) -> UserError:
    reason = error.strerror or str(error)
    return UserError(f"cannot write to {place}: {reason}", hint="TMPDIR=... names another folder")


def check_room(folder: Path) -> None:
    """Refuses a temporary folder that nothing can be written to any more."""
    try:
        with (folder / "room").open("wb") as file:
            file.write(bytes(_ROOM))
    except OSError as error:
        raise _no_room(str(folder.parent), error) from error
