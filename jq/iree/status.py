"""Errors of the runtime as errors of ours."""

from jq.base.errors import JqError, UserError

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
