"""Files: read when they are files and not larger than they may be; written whole or not at all."""

import ctypes
import hashlib
import json
import mmap
import os
import secrets
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jq.base.errors import UserError, check_type

Pairs = list[tuple[str, Any]]  # the keys and values of an object of JSON
TEXT_LIMIT = 256 << 20  # bytes of a file that is read as text: manifests, ranges, programs


def check_input(path: Path, limit: int | None = None) -> int:
    """The size of an input file in bytes; refuses pipes, devices, folders, and what is larger than
    `limit`, before a byte of it is read.

    Raises:
        UserError: it is not there, no regular file, or too large."""
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise UserError("no such file", location=str(path)) from error
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", location=str(path)) from error
    except ValueError as error:  # a null character in the name
        raise UserError("no such file", location=repr(path)) from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a device or a socket"
        raise UserError(f"not a file but {kind}", location=str(path))
    if limit is not None and status.st_size > limit:
        raise UserError(f"{status.st_size} bytes, at most {limit} are read", location=str(path))
    return status.st_size


def mapped(path: Path) -> mmap.mmap | bytes:
    """The bytes of a file, mapped into memory; errors as those of `check_input`."""
    size = check_input(path)
    try:
        with path.open("rb") as file:  # an empty one cannot be mapped
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", location=str(path)) from error


def read_input(path: Path, limit: int | None = None) -> bytes:
    """The content of an input file, see `check_input`. It may grow while it is read; what is
    beyond its size at the start is not read."""
    size = check_input(path, limit)
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", location=str(path)) from error


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damaged(path: Path, reason: str) -> UserError:
    """The error for a file of a compiled model that is not as it was written."""
    return UserError(f"{path} is damaged: {reason}", hint="compile the model again")


def read_text(path: Path, limit: int = TEXT_LIMIT) -> str:
    """The same for UTF-8 text."""
    try:
        return read_input(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"this is no UTF-8 text: byte {error.start}", location=str(path)) from error


def json_object(path: Path) -> dict[str, Any]:
    """Reads the object in a JSON file; `UserError` where it is none."""
    return as_object(read_text(path), path)


def as_object(
    text: str | bytes, where: str | Path, made: Callable[[Pairs], Any] | None = None
) -> dict[str, Any]:
    """Reads the object in the text of a JSON file; `UserError` where it is none. `made` is given
    the keys and values of each object, the inner ones first, in place of `dict`."""
    try:
        found = json.loads(text, object_pairs_hook=made)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not valid JSON: {error}", location=str(where)) from error
    if not isinstance(found, dict):
        raise UserError("this JSON is no object", location=str(where))
    return found


def once(pairs: Pairs) -> dict[str, Any]:
    """An object of JSON whose keys occur once: of two, readers take different ones, and a signature
    would hold for both."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise UserError(f"the key {twice!r:.60} occurs twice")
    return found


def settle(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk: a rename before that may
    survive a power failure without the content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block succeeds."""
    check_file(path)
    temporary = beside(path)
    try:
        yield temporary
        settle(temporary)
        temporary.replace(path)
        settle(path.absolute().parent)
    except OSError as error:
        error.filename = error.filename or str(path)  # what fails in a write names no file
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all; a link there is replaced, not followed."""
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def beside_prefix(path: Path) -> str:
    """The start of a temporary name beside `path`, cut: a name may be as long as any can be, and a
    longer one is refused by the system."""
    return f".{path.name[:_SHORT]}."


def beside(path: Path) -> Path:
    """A temporary name beside `path`, which nothing has."""
    return path.with_name(f"{beside_prefix(path)}{secrets.token_hex(8)}")


_SHORT = 40  # characters, of at most 4 bytes each, of the 255 that a name may have
_EXCHANGE = 2  # of renameat2: two names change places, and neither is ever missing


def exchange(one: Path, other: Path) -> bool:
    """Two folders change places at once; False where the system cannot do that."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here = -100  # AT_FDCWD
    return rename(here, os.fsencode(one), here, os.fsencode(other), _EXCHANGE) == 0


def as_path(given: Any) -> Path:
    """A path that was given; `UserError` for what is none."""
    check_type("a path", given, str, os.PathLike)
    if "\0" in str(given):
        raise UserError(f"no path has a zero byte: {given!r}")
    return Path(given)


def check_parent(path: Path) -> None:
    """Refuses an output that leads nowhere, or whose folder does not exist or is read-only."""
    if str(path) == "-":
        raise UserError("standard output takes no file of ours", hint="name a file or a folder")
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:  # links in a circle: a file would take the place of one
        raise UserError(f"cannot write {path}: {error.strerror}", hint="name another") from error
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UserError(f"no such folder: {path.parent}", hint="make it first")
    try:  # rights say nothing of a disk that is read-only, or of /proc
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        told = f"cannot write into {path.parent}: {error.strerror}"
        raise UserError(told, hint="choose another folder") from error


def check_file(path: Path) -> None:
    """Refuses an output file that cannot be written there, before any work is done for it."""
    check_parent(path)
    if path.is_dir():
        raise UserError(f"{path} is a directory", hint="name a file")
    if path.exists() and not path.is_file():  # a file would take the place of the device
        raise UserError(f"{path} is a pipe, a device or a socket", hint="name a file")


def check_new(path: Path, *, force: bool = False) -> None:
    """Refuses an output file that exists already, unless it may be replaced."""
    check_file(path)
    if path.exists() and not force:
        raise UserError(f"{path} exists already", hint="choose another name, or give --force")


def check_folder(path: Path, *, force: bool = False) -> None:
    """Refuses a folder to write files into that has some already, unless they may be replaced."""
    check_parent(path)
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file", hint="name a folder")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise UserError(f"{path} is not empty", hint="choose another name, or give --force")
