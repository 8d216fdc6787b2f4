"""The end of a failure: one readable line on standard error, and the exit code."""

import os
import sys
import traceback
from contextlib import suppress

import typer

from jq.base.errors import JqError, Terminated
from jq.base.tables import printable

_LONGEST = 2000  # characters of an error
USAGE, INTERRUPTED, INTERNAL = 2, 130, 1


def report(error: BaseException, debug: bool = False, writes: bool = False) -> int:
    """Prints what went wrong and returns the exit code that says whose fault it was. A command that
    `writes` does so at its very end."""
    if isinstance(error, BrokenPipeError):  # `jaxq ... | head`: the reader has what it wanted
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (for Python's own flush at exit)
        return INTERNAL
    code, message = classify(error, writes)
    if debug:
        print(printable("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    with suppress(OSError):  # a full disk, where the code alone says it
        print(f"jaxq: {printable(_line(message))}", file=sys.stderr)
    return code


def _line(message: str) -> str:
    """One line, of which a name from a file fills no screen."""
    line = " ".join(message.split())
    return (
        line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"
    )


def _nowhere() -> str:
    """Names a folder that was removed under us, for an error that names no file."""
    try:
        os.getcwd()
    except OSError:
        return ": the current directory"
    return ""


def classify(error: BaseException, writes: bool = False) -> tuple[int, str]:
    """Exit code and message of an error."""
    nothing = "; nothing was written" if writes else ""
    match error:
        case JqError():
            return error.exit_code, f"error: {error}"
        case Terminated():
            return 128 + error.number, f"terminated{nothing}"
        case KeyboardInterrupt() | typer.Abort():
            return INTERRUPTED, f"interrupted{nothing}"
        case typer.TyperException():
            context = getattr(error, "ctx", None)
            where = context.command_path if context else "jaxq"
            return error.exit_code, f"error: {error.format_message()} (see `{where} --help`)"
        case OSError():
            where = f": {error.filename}" if error.filename else _nowhere()
            return USAGE, f"error: {error.strerror or error}{where}"
        case MemoryError():
            return INTERNAL, "error: out of memory"
        case ImportError() if "failed to map segment" in str(error):  # as `ulimit -v` does
            return INTERNAL, "error: out of memory"
    kind = type(error).__name__
    return INTERNAL, f"internal error: {kind}: {error}; --debug shows the traceback"
