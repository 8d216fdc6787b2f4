"""IREE's compiler, run as a process of its own: it can crash, hang and be interrupted."""

import contextlib
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iree.compiler.tools.binaries import find_tool

from jq.base.errors import CompilerError, JqError, UserError
from jq.base.guard.limits import limits
from jq.base.system.child import signal_name
from jq.base.system.signals import held_back
from jq.base.system.temporary import check_room, temporary_folder
from jq.iree.cpu import HOST, believed_flags
from jq.iree.dump.reader import all_valid, dump_flags, read_phases
from jq.target.compiler_flags import combined

# What every module of ours is compiled with; a target adds the rest.
BASE_FLAGS: tuple[str, ...] = (
    "--iree-input-type=auto",
    # By default float64 silently becomes float32.
    "--iree-input-demote-f64-to-f32=false",
    # An expression over constants is evaluated at compile time only when its value is not larger
    # than its sources: otherwise dequantized weights of small layers are stored as float32.
    "--iree-opt-const-expr-max-size-increase-threshold=0",
    # LayerNorm and wide reductions of real models exceed the default of 32 KiB.
    "--iree-llvmcpu-stack-allocation-limit=262144",
)
# llvm-cpu for the machine that compiles.
HOST_FLAGS: tuple[str, ...] = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    HOST,
)
# The compiler checks its own program after every pass: up to 0.4 of its time. Instead it is checked
# where it has become IREE's own ops, by `dump.all_valid`, and after every pass where this, or the
# compile, has failed.
UNCHECKED = "--verify=false"
# What IREE 3.13 says where it fails at what is computed from constants, and the flag that helps:
# the program itself computes it, once when it is loaded, or in every call.
RETRIED = {
    "jit global source initialization order invalid": "--iree-opt-const-eval=false",
    "maximum iteration count exceeded": "--iree-opt-const-expr-hoisting=false",
}
# glibc: the compiler's heap in large pages, a twentieth of its time. The user's own comes first.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# The compiler's own temporary files, which it names to its linker through a shell without quoting:
# relative to its working directory, whatever the user's TMPDIR is called.
TEMPORARY = {"TMPDIR": "."}
LINKER = "iree-lld"
_LACKING = r"(?:undefined symbol: |failed to legalize operation 'math\.)(\w+)"  # of libm
_NO_MEMORY = (
    r"std::bad_alloc|out of memory|Allocation failed|Cannot allocate memory"
    r"|error while loading shared libraries"  # not even its own code fits
)
_LINE_LIMIT = 400


@dataclass(frozen=True)
class Compilation:
    """Result of one compile.

    Attributes:
        vmfb: the module that IREE's runtime loads.
        program: the compiler's own IR in phase `dump.DUMP_PHASE`, with locations, large constants
            elided; None when it was not asked for.
        seconds: wall time."""

    vmfb: bytes
    program: str | None
    seconds: float


def compile_module(
    source: bytes,
    *,
    flags: Sequence[str] = HOST_FLAGS,
    timeout: float | None = None,
    keep_dump: bool = True,
) -> Compilation:
    """Compiles MLIR bytecode (or text) with `iree-compile BASE_FLAGS flags`.

    `timeout` in seconds, and the memory that it may take, are those of `jq.base.guard.limits`
    otherwise. A function that the compiler lacks is a `UserError`. Any other failure, crash or
    timeout is a `CompilerError` with the compiler's first error in one line; the IR, the command
    and the compiler's output are kept in a directory `jaxq-crash-*` under the system's temporary
    directory. An interrupt kills the compiler and leaves nothing behind."""
    with temporary_folder() as work:
        (work / "module.mlirbc").write_bytes(source)
        timeout = timeout or limits().compiling()[0]
        command = [find_tool("iree-compile"), "module.mlirbc", "-o", "module.vmfb"]
        command += combined((*BASE_FLAGS, *linker_flags(work)), believed_flags(flags))
        if keep_dump:
            command += dump_flags(Path("dump"))
        start = time.perf_counter()
        quick = [UNCHECKED] if keep_dump else []
        code, log = _run([*command, *quick], work, timeout)
        for said, flag in RETRIED.items():
            if code and said in log:
                command.append(flag)
                code, log = _run([*command, *quick], work, timeout)
        failed = code is not None and code != 0
        if quick and (failed or (code == 0 and not all_valid(work / "dump"))):
            code, log = _run(command, work, timeout)  # what is wrong is said best where it went so
        seconds = time.perf_counter() - start
        if code != 0:
            check_room(work)  # before the failure is kept: it may be for lack of room
            raise _failure(code, log, command, source, timeout)
        program = read_phases(work / "dump") if keep_dump else None
        return Compilation((work / "module.vmfb").read_bytes(), program, seconds)


def check_flags(flags: Sequence[str]) -> None:
    """Refuses flags that the compiler does not know, without compiling anything."""
    command = [find_tool("iree-compile"), *combined(BASE_FLAGS, believed_flags(flags)), "--version"]
    with temporary_folder() as work:
        _, log = _run(command, work, limits().compiling()[0])  # `--version` ends well in any case
    if unknown := _unknown_flag(log):
        raise unknown


def _unknown_flag(log: str) -> UserError | None:
    if not (unknown := re.search(r"Unknown command line argument '([^']*)'", log)):
        return None
    return UserError(f"IREE's compiler has no flag {unknown[1].partition('=')[0]}")


def linker_flags(work: Path) -> list[str]:
    """IREE starts its linker through a shell without quoting its path: give it a plain one."""
    linker = find_tool(LINKER)
    if shlex.quote(linker) == linker:
        return []
    (work / LINKER).symlink_to(linker)
    return [f"--iree-llvmcpu-embedded-linker-path=./{LINKER}"]


def _run(command: Sequence[str], work: Path, timeout: float) -> tuple[int | None, str]:
    """Exit code (None: timed out) and what it printed. The whole process group ends with us. A pipe
    says at once that the process has ended; `wait` would look 20 times a second."""
    process, code = None, None
    try:
        with held_back():
            process = subprocess.Popen(
                command,
                cwd=work,
                env=LARGE_PAGES | os.environ | TEMPORARY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if (memory := limits().compiling()[1]) is not None:
            with contextlib.suppress(ProcessLookupError):  # it may have ended already
                resource.prlimit(process.pid, resource.RLIMIT_AS, (memory, memory))
        log, _ = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired as late:
        log = late.output or b""
    finally:
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the linker that it may have started, too
            process.wait()
        if process is not None and process.stdout is not None:
            process.stdout.close()
    return code, log.decode(errors="replace")


def _failure(
    code: int | None, log: str, command: Sequence[str], source: bytes, timeout: float
) -> JqError:
    if lacking := re.search(_LACKING, log):
        return UserError(
            f"the compiler has no function {lacking[1]}",
            hint="it lacks most functions of float64: compute that part of the model in float32",
        )
    if unknown := _unknown_flag(log):
        return unknown
    if machine := re.search(r"createTargetMachine\((.*)\) failed", log):
        hint = "give LLVM's name of one, as riscv64-unknown-linux-gnu"
        return UserError(f"the compiler knows no processor {machine[1]!r}", hint=hint)
    if "no HAL devices defined" in log:
        flag = "--iree-hal-target-device=local"
        return UserError("the target's flags name no device", hint=f"flags = [{flag!r}, ...]")
    # Without memory it ends in many ways.
    starved = code is not None and (code < 0 or re.search(_NO_MEMORY, log))
    if starved and (memory := limits().memory) is not None:
        reason = f"the compiler does not get by with {memory} bytes"
        return UserError(reason, hint="--max-memory allows more")
    if code is None:
        message = f"iree-compile did not finish within {timeout:g} s"
    else:
        message = f"iree-compile {f'crashed ({signal_name(code)})' if code < 0 else 'failed'}"
    if reason := first_error(log):
        message += f": {reason}"
    return CompilerError(message, ir_path=_keep(source, command, log), hint="the IR is kept there")


def first_error(log: str) -> str:
    """The first line of a compiler's output that says what is wrong, without its position."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for pattern in (r".*?\berror: (.+)", r"(LLVM ERROR: .+)", r".*?(Assertion .+)"):
        for line in lines:
            if match := re.match(pattern, line):
                return match[1][:_LINE_LIMIT]
    useful = (line for line in lines if not line.startswith(("PLEASE", "Stack dump", "#")))
    return next(useful, "")[:_LINE_LIMIT]


def _keep(source: bytes, command: Sequence[str], log: str) -> Path | None:
    """Saves what reproduces a failure; None when even that is impossible (a full disk)."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="jaxq-crash-"))
    except OSError:
        return None
    try:
        path = folder / "module.mlirbc"
        path.write_bytes(source)
        line = os.fsencode(shlex.join(command) + "\n")  # names of files are bytes
        (folder / "command.txt").write_bytes(line)
        (folder / "stderr.txt").write_text(log, encoding="utf-8")
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return path
