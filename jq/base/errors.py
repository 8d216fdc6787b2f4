"""Every error a user can meet: one line that says what, where and what to do; and the log."""

import logging
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from jq.base.system.child import signal_name

LOG = logging.getLogger("jq")  # notes and warnings, which commands print
# What functions of the user's may raise: `sys.exit` in a model ends that model, not its compiler.
OF_USERS = (Exception, SystemExit)
# A word that nobody reads: what was given in the place of a name, and is no path.
_LONG = re.compile(r"[^\s/]{300,}")


class JqError(Exception):
    """Base of all errors of this package.

    Args:
        message: what went wrong, one line, no trailing full stop needed.
        op: name of the op or tensor concerned, if there is one.
        location: where: a file, a key, a source location.
        hint: what the user can do about it.

    Example:
        ```python
        try:
            jq.compile(model, "int8-static").save("out/", overwrite=True)
        except jq.JqError as error:  # whatever it was: one line
            print(f"not compiled: {error}")
        ```"""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        op: str | None = None,
        location: str | None = None,
        hint: str | None = None,
    ) -> None:
        message = _LONG.sub(lambda word: f"{word[0][:60]}...{word[0][-20:]}", message)
        super().__init__(message)
        self.message, self.op, self.location, self.hint = message, op, location, hint

    def __str__(self) -> str:
        where = "".join(f" [{part}]" for part in (self.op, self.location) if part)
        return f"{self.message}{where}" + (f"; {self.hint}" if self.hint else "")


class UserError(JqError, ValueError):
    """A request that cannot be met: a wrong name, model or file, or an unsupported operation.

    The message is one line that says what is wrong, where, and what to do. The command line prints
    it and ends with exit code 2. It is a `ValueError` too, as Python expects for a wrong argument.

    Example:
        ```python
        try:
            jq.compile(model, "int8-statc")
        except jq.UserError as error:
            print(error)  # names the pipeline that was probably meant
        ```"""

    exit_code = 2


class FormatError(UserError):
    """A tensor or a setting that a number format refuses."""


class CompilerError(JqError):
    """A compiler failed, crashed or timed out; `ir_path` holds the IR it was given.

    Example:
        ```python
        try:
            jq.compile(model, "int8-dynamic")
        except jq.CompilerError as error:
            print(error, error.ir_path)  # the file belongs to a report of the bug
        ```"""

    def __init__(self, message: str, *, ir_path: Path | None = None, hint: str | None = None):
        super().__init__(message, location=str(ir_path) if ir_path else None, hint=hint)
        self.ir_path = ir_path


class XlaCrashed(CompilerError):
    """The process in which XLA runs the float model has ended by itself."""

    exit_code = 2

    def __init__(self, code: int) -> None:
        how = signal_name(code) if code < 0 else f"exit code {code}"
        super().__init__(
            f"XLA, which runs the float model, has crashed ({how})",
            hint="try another version of jaxlib (`jaxq doctor`); or was there enough memory?",
        )
        self.code = code

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return type(self), (self.code,)


_STARVED = r"(?i)failed to map segment|start new thread|resource_exhausted|out of memory|bad_alloc"


def lacks_memory(error: BaseException) -> bool:
    """True for an error of Python, or of a library, that says that there is no memory left."""
    return isinstance(error, MemoryError) or re.search(_STARVED, str(error)) is not None


class FarFromFloat(UserWarning):
    """Outputs that are far from the float model's: the op that makes it, and what would help."""


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM, SIGHUP); an interrupt, from elsewhere."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class InternalError(JqError):
    """A broken invariant of ours: a bug, to be reported with the IR at hand."""


MANY, SHOWN = 16, 6  # names that a line can hold; that may have been meant


def known(name: str, names: Iterable[str]) -> str:
    """A hint for a name that is none of `names`: the one that was likely meant, and all of them.

    Many names hide the one that was meant, and are left out when there is one."""
    names = list(dict.fromkeys(names))
    meant = _asked(_meant(name.lower(), {other.lower(): other for other in reversed(names)}))
    if meant and len(names) > MANY:
        return f"{meant} ({len(names)} names are known)"
    return f"known: {', '.join(names) or 'none'}" + (f" ({meant})" if meant else "")


def check_known(
    what: str, name: Any, names: Iterable[str], where: str = "", location: str | None = None
) -> str:
    """The name of something, which has to be one of `names`."""
    names = list(names)
    if not isinstance(name, str) or name not in names:
        hint = known(str(name), names)
        raise UserError(f"unknown {what} {name!r:.99}{where}", location=location, hint=hint)
    return name


_PLAIN = {"NoneType": "None", "Callable": "a function", "str": "a string", "PathLike": "a path"}
_PLAIN |= {"bool": "True or False", "Path": "a path", "Collection": "a list", "Mapping": "a dict"}


def check_type(what: str, value: Any, *kinds: Any) -> None:
    """Refuses (`UserError`) an argument that is of none of the types: it would be taken for
    something else, or fail far inside."""
    if not isinstance(value, kinds):
        wanted = dict.fromkeys(_PLAIN.get(kind.__name__, kind.__name__) for kind in kinds)
        told = f"{what} is of type {type(value).__name__}"
        raise UserError(told, hint=f"give {' or '.join(wanted)}")


def _meant(name: str, others: Mapping[str, str]) -> list[str]:
    """The names that were likely meant: a part of one was given (`int8` of `int8-dynamic`, `cpu` of
    `llvm-cpu`), else one was misspelt."""
    if len(name) > 2:
        for part_of in (str.startswith, str.__contains__):
            if whole := [other for low, other in others.items() if part_of(low, name)]:
                return whole[::-1] if name not in others else [others[name]]
    return [others[low] for low in get_close_matches(name, others, n=1, cutoff=0.65)]


def _asked(names: list[str]) -> str:
    """`did you mean 'a', 'b' or 'c'?`"""
    *first, last = [repr(name) for name in names[:SHOWN]] or [""]
    return f"did you mean {' or '.join(filter(None, [', '.join(first), last]))}?" if names else ""
