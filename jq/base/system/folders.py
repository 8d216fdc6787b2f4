"""A folder that takes the place of another one, whole or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jq.base.system.files import beside_prefix, exchange, settle, umask


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """A new directory that takes the place of `directory` when the block succeeds.

    What is in `directory` before goes away with it: the caller knows that it may.
    """
    place = directory.absolute()
    work = Path(tempfile.mkdtemp(dir=place.parent, prefix=beside_prefix(place)))
    old = work.with_name(f"{work.name}.old")
    try:
        yield work
        work.chmod(0o777 & ~umask())
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
