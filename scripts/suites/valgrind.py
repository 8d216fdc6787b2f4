"""A compiled module under Valgrind, which looks at every access to memory.

IREE's runtime waits through `io_uring`, in which Valgrind sleeps for ever: the kernel is asked to
say that it has none, and the runtime falls back to `epoll`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import iree._runtime_libs as _runtime_libs
import iree.runtime as rt
import numpy as np

from jq.ir import dtype_name
from jq.iree.runtime import SCOPE
from suites.memory import Built, StrayAccess, read

VALGRIND = shutil.which("valgrind")
FOUND = 99  # Valgrind's exit code where it has found something
MEMCHECK = (
    *(sys.executable, str(Path(__file__).with_name("without_io_uring.py")), str(VALGRIND)),
    *(f"--error-exitcode={FOUND}", "--undef-value-errors=no"),
    "--smc-check=all-non-file",  # IREE's own loader writes code into memory
)
RUN_MODULE = (str(Path(_runtime_libs.__path__[0]) / "iree-run-module"), "--device=local-sync")
SECONDS = 300


def call_under_valgrind(built: Built) -> list[np.ndarray]:
    """The results; `StrayAccess` with Valgrind's first words where it has found something."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        command = [*MEMCHECK, *RUN_MODULE, *_arguments(built, work)]
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if done.returncode == FOUND:
            said = re.findall(r"==\d+== ((?:Invalid|Process|Jump|Address).*)", done.stderr)
            raise StrayAccess("; ".join(said[:3]))
        if done.returncode:
            raise RuntimeError(done.stderr[-400:])
        return [
            read(spec, np.fromfile(work / f"output{i}", np.uint8))
            for i, spec in enumerate(built.outputs)
        ]


def _arguments(built: Built, work: Path) -> Sequence[str]:
    """Arguments of `iree-run-module`, whose files lie in a folder."""
    (work / "module.vmfb").write_bytes(built.vmfb)
    found = ["--module=module.vmfb", "--function=main"]
    if built.parameters:
        index = rt.ParameterIndex()
        for key, array in built.parameters.items():
            index.add_buffer(key, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        index.create_archive_file(str(work / "constants.irpa"))
        found += [f"--parameters={SCOPE}=constants.irpa", "--parameter_mode=preload"]
    for i, array in enumerate(built.inputs):
        found.append(f"--input={_file(array, work / f'input{i}')}")
    return found + [f"--output=@output{i}" for i in range(len(built.outputs))]


def _file(array: np.ndarray, path: Path) -> str:
    """Writes an array; how `iree-run-module` is told of it."""
    if array.dtype.kind == "c":
        np.save(path.with_suffix(".npy"), array)
        return f"@{path.stem}.npy"
    np.ascontiguousarray(array).tofile(path)
    kind = "x".join([*map(str, array.shape), dtype_name(array.dtype).removeprefix("u")])
    return f"{kind}=@{path.name}"
