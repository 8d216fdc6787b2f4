"""Digests of large files, read as a whole only when somebody wrote to them."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jq.artifact.keys import digest
from jq.artifact.store import Cache
from jq.base.errors import UserError
from jq.base.system.files import sha256

_TICK = 2.0  # seconds, of the coarsest clock that a file system tells the time of a change by


def file_digest(files: Sequence[Path], root: Path | None = None) -> str:
    """SHA-256 of the names and contents of files, which are kept for as long as the system says
    that nobody has written to them: the time of a file's last change (`ctime`) can not be set, as
    its other times can. One that changed a moment ago may change again within the same tick.

    Raises:
        UserError: one cannot be read.
    """
    try:
        stats = [file.stat() for file in files]
        facts = [[s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for s in stats]
        known = Cache("file", root=root)
        key = [[str(file.resolve()) for file in files], facts]
        if (found := known.get(key)) is not None:
            return bytes(found["sha256"]).decode()
        made = digest([(file.name, sha256(file)) for file in files])
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", location=str(files[0])) from error
    if time.time() - max((s.st_ctime for s in stats), default=0) > _TICK:
        known.put(key, {"sha256": np.frombuffer(made.encode(), np.uint8)})
    return made
