"""Modules that IREE compiled, kept between runs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jq.artifact.store import LIMIT, Arrays, Cache
from jq.iree.compiler import BASE_FLAGS, HOST_FLAGS, Compilation, compile_module


def compile_cached(
    source: bytes,
    *,
    flags: Sequence[str] = HOST_FLAGS,
    root: Path | None = None,
    limit: int = LIMIT,
) -> Compilation:
    """`compile_module`, or its result from an earlier run (`seconds` is that run's).

    It depends on the bytecode with its constants (parameters lie outside of it and do not matter),
    on the flags and, because a flag may say `host`, on this processor. A cache that is damaged, or
    cannot be written, is as good as none."""

    def make() -> Arrays:
        made = compile_module(source, flags=flags)
        parts = {"vmfb": made.vmfb, "program": (made.program or "").encode()}
        arrays = {name: np.frombuffer(part, np.uint8) for name, part in parts.items()}
        return arrays | {"seconds": np.array(made.seconds)}

    found = Cache("module", root=root, limit=limit).of([source, [*BASE_FLAGS, *flags]], make)
    program = found["program"].tobytes().decode()
    return Compilation(found["vmfb"].tobytes(), program, float(found["seconds"]))
