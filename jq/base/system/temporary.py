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
    except OSError as error:
        raise _no_room("the folder for temporary files", error) from error
    try:
        with _locked(folder):
            yield folder
    except (OSError, JqError):
        check_room(folder)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Locks a folder, for whoever looks whether its process is alive; False where that fails."""
    handle, locked = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW), False
    try:
        with suppress(OSError):  # another has the lock, or this file system has none
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        yield locked
    finally:
        os.close(handle)


@cache
def _remove_left(root: str) -> None:
    """Removes, once in a process, temporary folders of processes that were killed: nobody has the
    lock on these. One that is new may not be locked yet."""
    for folder in Path(root).glob(f"{_WORK}????????"):
        with suppress(OSError):
            if folder.lstat().st_mtime < time.time() - _NEW:
                with _locked(folder) as left:
                    if left:
                        shutil.rmtree(folder, ignore_errors=True)


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
