"""Folders that take the place of others, and those of results that are kept between runs, which
nobody else may have written to: some of what is kept there is native code that we load."""

import atexit
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import platformdirs

from jq.base import temporary_folder
from jq.base.errors import LOG, InternalError, UserError, check_known
from jq.base.system.files import beside, check_parent, exchange, settle


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """A new directory that takes the place of `directory` when the block succeeds.

    What is in `directory` before goes away with it: the caller knows that it may."""
    place = directory.absolute()
    work = beside(place)
    work.mkdir()
    old = work.with_name(f"{work.name}.old")
    try:
        yield work
        for written in (*work.rglob("*"), work):
            settle(written)
        if not place.exists():
            work.rename(place)
        elif not exchange(work, place):
            place.rename(old)
            work.rename(place)
        settle(place.parent)
    finally:
        if old.exists() and not place.exists():  # interrupted between the two
            old.rename(place)
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder as `replacing` has it, where there must be nothing."""
    check_parent(path)
    if path.exists():
        raise UserError(f"{path} exists already", hint="choose another directory")
    with replacing(path) as work:
        yield work


def cache_root() -> Path:
    return Path(platformdirs.user_cache_dir("jaxq"))


def cache_folder(name: str) -> Path:
    """The folder `name` of the user's cache directory; an empty one of this process alone, with a
    warning, where others may have written there."""
    root = cache_root()
    if reason := _not_ours(root, name):
        return _of_this_process(str(root), reason) / name
    return root / name


def make_private(folder: Path) -> None:
    """Makes a folder, and those above it, whatever is made now without rights for others."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


def _not_ours(root: Path, name: str) -> str:
    """The reason why another user may have written here; empty if none could."""
    for place in (root.parent, root, root / name):
        try:
            status = place.stat()
        except OSError:
            return ""
        shared = status.st_mode & stat.S_IWOTH
        shared |= status.st_mode & stat.S_IWGRP and status.st_gid != os.getegid()
        if shared and not (place == root.parent and status.st_mode & stat.S_ISVTX):
            return f"others may write to {place}"
        if place != root.parent and status.st_uid not in (0, os.getuid()):
            return f"{place} belongs to another user"
    return ""


@cache
def _of_this_process(root: str, reason: str) -> Path:
    LOG.warning("the cache directory %s is not used: %s", root, reason)
    made = ExitStack()
    owner = os.getpid()
    atexit.register(lambda: made.close() if os.getpid() == owner else None)  # not in a fork
    return made.enter_context(temporary_folder())


def data_dir(kind: str) -> Path:
    """The folder of our `pipelines` or `targets`: inside an installed package, or in a clone."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "_data" / kind, package.parent / kind):
        if folder.is_dir():
            return folder
    raise InternalError(f"the installation has no {kind!r} folder", hint="install jaxq again")


def data_names(kind: str) -> list[str]:
    """The names of our `pipelines` or `targets`, sorted."""
    return sorted(path.stem for path in data_dir(kind).glob("*.toml"))


def data_file(kind: str, name: str) -> Path:
    """The TOML file for `name`: one of ours by its name, or a path to the user's own.

    Raises:
        UserError: there is no such file; the hint lists the names of ours."""
    own = Path(name)
    if own.suffix == ".toml" or own.parent != Path():
        if own.is_file():
            return own
        raise UserError(f"no such file: {name}", hint=f"give a path, or one of our {kind} by name")
    check_known(kind.removesuffix("s"), name, data_names(kind))
    return data_dir(kind) / f"{name}.toml"
