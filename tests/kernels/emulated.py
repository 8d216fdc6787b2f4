"""Kernels on a processor that this machine is not: `scripts/check.py arm` sets it up.

`JAXQ_EMULATOR` is a command that starts a Python of the other architecture, which has NumPy and
IREE's runtime. The tests of kernels then compile for that architecture and run there, all in one
process, against the same references.
"""

from __future__ import annotations

import atexit
import os
import shlex
import subprocess
from collections.abc import Sequence
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np

from tests.kernels import emulated_runtime

COMMAND = os.environ.get("JAXQ_EMULATOR", "")
ISAS = ("aarch64_i8mm", "aarch64_dotprod", "portable")
FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-triple=aarch64-unknown-linux-gnu",
    "--iree-llvmcpu-target-cpu=generic",
    "--iree-llvmcpu-target-cpu-features=+neon,+dotprod,+i8mm",
)
_NUMBERS = count()


class Emulated:
    """A compiled module there; `run` calls one of its functions.

    `parameters` is the file of its weights, if they are not in the module; `command` starts the
    Python of the other architecture.
    """

    kernels, runs = 0, 0  # of this session

    def __init__(
        self, data: bytes, kernels: int, parameters: Path | None = None, command: str = COMMAND
    ) -> None:
        self.data, self.number, self.command = data, next(_NUMBERS), command
        self.parameters = str(parameters) if parameters else None
        type(self).kernels += kernels

    def run(self, name: str, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        process = _process(self.command)
        assert process.stdin is not None and process.stdout is not None
        request = (self.number, self.data, self.parameters, name, list(operands))
        emulated_runtime.send(process.stdin, request)
        found = emulated_runtime.receive(process.stdout)
        if isinstance(found, str):
            raise RuntimeError(found)
        type(self).runs += 1
        return list(found)


@cache
def _process(command: str) -> subprocess.Popen[bytes]:
    words = [*shlex.split(command), emulated_runtime.__file__]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(process.kill)
    return process
