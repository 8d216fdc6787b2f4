"""Output of commands, and its streams.

A result goes to standard output: tables for people, or with `--json` one document for programs and
nothing else. Progress, notes and warnings go to standard error."""

import json
import logging
import math
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from typing import Any, TextIO

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from jq.base.errors import JqError, Terminated, lacks_memory
from jq.base.progress import Bar, Progress, silent
from jq.base.tables import SafeConsole, plain_table, printable

PIPE_WIDTH = 200  # columns of a table that goes to a file; nothing is cut off


@dataclass
class Output:
    """The common options of every command and the two consoles that follow from them.

    `code` is the exit code of a command that ends well: 1 when what it examined is at fault."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    debug: bool = False
    code: int = 0
    stdout: TextIO = field(default_factory=lambda: sys.stdout)

    def __post_init__(self) -> None:
        self.errors = console(sys.stderr)
        self.tables = self.errors if self.json else console(self.stdout)
        self.stray = sys.stderr if self.json else self.stdout  # what a user's model prints

    @contextmanager
    def active(self) -> Iterator[None]:
        """Keeps standard output clean; shows our warnings, and our log with `-v`, as lines."""
        log, handler = logging.getLogger("jq"), _Lines(self)
        level = log.level
        log.addHandler(handler)
        log.setLevel(logging.INFO if self.verbose else logging.WARNING)
        try:
            with warnings.catch_warnings(), redirect_stdout(self.stray):
                warnings.simplefilter("default")
                warnings.showwarning = self._warn
                yield
        finally:
            log.setLevel(level)
            log.removeHandler(handler)

    def _warn(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        # A library's warnings are for developers; ours (UserWarning) are for the user.
        if self.verbose or issubclass(category, UserWarning):
            logging.getLogger("jq").warning("%s", message)

    def document(self, value: Any) -> None:
        """The result as JSON; what JSON has no number for (inf, nan) becomes null."""
        if self.json:
            print(json.dumps(plain(value), indent=2, allow_nan=False), file=self.stdout)

    def line(self, text: str, whole: bool = False) -> None:
        """Lines of the result; `whole`: to be copied, and never broken."""
        if not (self.json and self.quiet):
            _print(self.tables, text, whole)

    def note(self, text: str) -> None:
        """A line beside the result, which `-q` leaves out."""
        if not self.quiet:
            _print(self.errors, text)

    def show(self, result: RenderableType) -> None:
        """A result that knows how to print itself."""
        if not (self.json and self.quiet):
            self.tables.print(result, crop=False)

    def table(
        self, title: str, columns: Sequence[str], records: Sequence[Mapping[str, Any]]
    ) -> None:
        """A table of the result, one row a record; columns of numbers are right-aligned, and those
        that no record has a value for are left out."""
        self.show(Text(title, style="italic"))
        table = plain_table()
        columns = [c for c in columns if not records or any(r.get(c) is not None for r in records)]
        for name in columns:
            numeric = all(isinstance(r.get(name), int | float | None) for r in records)
            table.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for record in records:
            table.add_row(*(Text(printable(cell(record.get(name)))) for name in columns))
        self.show(table)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A bar while the block runs, as lines when standard error is not a terminal."""
        if self.quiet:
            yield silent
        elif self.errors.is_terminal:
            bar = Bar(self.errors)
            try:
                yield bar
            finally:
                bar.stop()
        else:
            yield self._stage_lines()

    def _stage_lines(self) -> Progress:
        seen: list[str] = []

        def update(stage: str, share: float | None) -> None:
            if seen[-1:] != [stage]:
                seen.append(stage)
                self.note(f"{stage} ...")

        return update


def _print(to: Console, text: str, whole: bool = False) -> None:
    """Prints lines; in a terminal sentences are broken between words, and commands, which stand
    further in, never: they are to be copied."""
    for line in text.split("\n"):
        kept = whole or not to.is_terminal or line.startswith("  ")
        to.print(line, highlight=False, soft_wrap=kept)


class _Lines(logging.Handler):
    """Records of our log as notes."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self.out, self.said = out, set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        warns, text = record.levelno >= logging.WARNING, record.getMessage()
        if not (warns and text in self.said):
            self.out.note(f"{record.levelname.lower()}: {text}" if warns else text)
        self.said.add(text)


def console(stream: TextIO) -> Console:
    return SafeConsole(file=stream, width=None if stream.isatty() else PIPE_WIDTH)


def cell(value: Any) -> str:
    """A value as a person reads it in a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)  # a shape


def plain(value: Any) -> Any:
    """`value` in the types of JSON: NumPy's scalars become Python's, inf and nan become None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


# The end of a failure: one readable line on standard error, and the exit code.
_LONGEST = 2000  # characters of an error
USAGE, INTERRUPTED, INTERNAL = 2, 130, 1
REPORTED: list[int] = []  # the codes of errors that were printed


def report(error: BaseException, debug: bool = False, writes: bool = False) -> int:
    """Prints what went wrong and returns the exit code that says whose fault it was. A command that
    `writes` does so at its very end."""
    if isinstance(error, BrokenPipeError):  # `jaxq ... | head`: the reader has what it wanted
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (for Python's own flush at exit)
        return INTERNAL
    code, message = classify(error, writes)
    REPORTED.append(code)
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
        case _ if lacks_memory(error):
            return INTERNAL, f"error: out of memory; free some, or take a smaller model ({error!r})"
    return INTERNAL, f"internal error: {type(error).__name__}: {error}; --debug shows the traceback"
