"""Compiled modules kept between runs, in the user's cache directory.

An entry is found by a digest of everything that the result depends on: the bytecode with its
constants (parameters lie outside of it and do not matter), the flags, the compiler's version and,
because a flag may say `host`, this processor. Entries that were not used for longest go first.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from jq.base.errors import UserError
from jq.base.system.cache_folder import cache_folder, make_private
from jq.base.system.files import read_input
from jq.iree import cpu
from jq.iree.compiler import BASE_FLAGS, HOST_FLAGS, Compilation, compile_module

LIMIT = 2 << 30  # bytes
_SUFFIX, _UNFINISHED = ".compiled", ".part"
ABANDONED = 3600.0  # seconds after which nobody writes an entry any more


def cache_dir() -> Path:
    return cache_folder("compiled")


def compile_cached(
    source: bytes,
    *,
    flags: Sequence[str] = HOST_FLAGS,
    timeout: float | None = None,
    directory: Path | None = None,
    limit: int = LIMIT,
) -> Compilation:
    """`compile_module`, or its result from an earlier run (`seconds` is that run's).

    A cache that is damaged, or cannot be written, is as good as none.
    """
    directory = directory or cache_dir()
    path = directory / f"{key_of(source, flags)}{_SUFFIX}"
    if (found := _read(path)) is not None:
        return found
    made = compile_module(source, flags=flags, timeout=timeout)
    with suppress(OSError):
        _write(path, made)
        shrink(directory, _SUFFIX, limit)
    return made


def key_of(source: bytes, flags: Sequence[str]) -> str:
    """The digest that an entry is found by."""
    here = cpu.host()
    context = {
        "flags": [*BASE_FLAGS, *flags],
        "compiler": version("iree-base-compiler"),
        "cpu": [here.architecture, here.name, *sorted(here.features)] if here else None,
    }
    digest = hashlib.sha256(json.dumps(context).encode() + b"\0")
    digest.update(source)
    return digest.hexdigest()


# One line of JSON, then the program, then the module.


def _read(path: Path) -> Compilation | None:
    try:
        line, _, body = read_input(path).partition(b"\n")
        head = json.loads(line)
        program, vmfb = body[: head["program_bytes"]], body[head["program_bytes"] :]
        # The name is part of what is checked: an entry under another's name is not believed.
        if _checksum(path, program + vmfb) != head["sha256"]:
            return None
        os.utime(path)  # used now
        return Compilation(vmfb, program.decode(), float(head["seconds"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, UserError):
        return None


def _checksum(path: Path, content: bytes) -> str:
    return hashlib.sha256(path.name.encode() + b"\0" + content).hexdigest()


def _write(path: Path, made: Compilation) -> None:
    program = (made.program or "").encode()
    head = {
        "program_bytes": len(program),
        "sha256": _checksum(path, program + made.vmfb),
        "seconds": made.seconds,
    }
    replaced(path, json.dumps(head).encode() + b"\n" + program + made.vmfb)


def replaced(path: Path, content: bytes) -> None:
    """Writes an entry wholly or not at all."""
    make_private(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=_UNFINISHED)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def shrink(directory: Path, suffix: str, limit: int) -> None:
    """Removes entries, the longest unused first, until all together fit into `limit` bytes, and
    what a process that was killed left half written."""
    for path in directory.glob(f"*{_UNFINISHED}"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()
    entries = []
    for path in directory.glob(f"*{suffix}"):
        with suppress(FileNotFoundError):  # another process may shrink it, too
            stat = path.stat()
            entries.append((stat.st_mtime_ns, stat.st_size, path))
    excess = sum(size for _, size, _ in entries) - limit
    for _, size, path in sorted(entries):
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= size
