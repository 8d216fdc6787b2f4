"""Parameters that a module reads: archives, mapped or in memory, or arrays."""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from iree import runtime as rt

from jq.base.errors import JqError, UserError
from jq.base.system.files import check_input

# Errors of the runtime as errors of ours.
# What the runtime's status codes become in Python.
RUNTIME_ERRORS = (RuntimeError, ValueError, LookupError, OSError, MemoryError)
# Codes that say that the module or its arguments are wrong, not that the machine fails.
_OF_WHAT_IS_GIVEN = ("INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "UNIMPLEMENTED", "DATA_LOSS")


def readable(error: Exception, what: str) -> JqError:
    """One line: the runtime's message without its source position and stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else type(error).__name__
    _, _, status = line.rpartition(".c:")
    reason = (status.partition(": ")[2] or line).partition("; while invoking")[0]
    given = isinstance(error, ValueError) or any(code in line for code in _OF_WHAT_IS_GIVEN)
    kind = UserError if given else JqError
    return kind(f"{what}: {reason}"[:400])


SCOPE = "model"  # of the parameters


class ParameterFiles:
    """Archives of parameters, mapped into memory once for all modules that read them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.index = rt.ParameterIndex()
        for path in paths:
            check_input(path)  # a pipe would be waited for
            try:
                self.index.load(str(path))
            except RUNTIME_ERRORS as error:
                raise readable(error, f"cannot read parameters from {path}") from error


@dataclass(frozen=True)
class Archive:
    """A parameter file that is in memory; `kind` is `irpa` or `safetensors`."""

    memory: mmap.mmap
    kind: str


def index_of(parameters: Path | Mapping[str, np.ndarray] | ParameterFiles | Archive) -> Any:
    """The runtime's index of parameters: of an archive that it maps, or of arrays by key."""
    if isinstance(parameters, ParameterFiles):
        return parameters.index
    index = rt.ParameterIndex()
    if isinstance(parameters, Path):
        index.load(str(parameters))
    elif isinstance(parameters, Archive):
        handle = rt.FileHandle.wrap_memory(parameters.memory)
        index.load_from_file_handle(handle, parameters.kind)
    else:
        for key, array in parameters.items():
            index.add_buffer(key, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return index
