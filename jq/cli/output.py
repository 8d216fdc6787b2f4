"""Output of commands, and its streams.

A result goes to standard output: tables for people, or with `--json` one document for programs and
nothing else. Progress, notes and warnings go to standard error.
"""

import json
import logging
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from jq.base.progress import Bar, Progress, silent
from jq.base.tables import SafeConsole, plain_table, printable

PIPE_WIDTH = 200  # columns of a table that goes to a file; nothing is cut off


@dataclass
class Output:
    """The common options of every command and the two consoles that follow from them.

    `code` is the exit code of a command that ends well: 1 when what it examined is at fault.
    """

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
            self.note(f"warning: {message}")

    def document(self, value: Any) -> None:
        """The result as JSON; what JSON has no number for (inf, nan) becomes null."""
        if self.json:
            print(json.dumps(plain(value), indent=2, allow_nan=False), file=self.stdout)

    def line(self, text: str) -> None:
        """A line of the result."""
        if not (self.json and self.quiet):
            _print(self.tables, text)

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
        """A table of the result, one row a record; columns of numbers are right-aligned."""
        self.show(Text(title, style="italic"))
        table = plain_table()
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


def _print(to: Console, text: str) -> None:
    """In a terminal, sentences are broken between words; commands, which stand further in, never:
    they are to be copied."""
    for line in text.split("\n"):
        to.print(line, highlight=False, soft_wrap=not to.is_terminal or line.startswith("  "))


class _Lines(logging.Handler):
    """Records of our log as notes."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self.out = out

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        self.out.note(prefix + record.getMessage())


def console(stream: TextIO) -> Console:
    return SafeConsole(file=stream, width=None if stream.isatty() else PIPE_WIDTH)


def cell(value: Any) -> str:
    """A value as a person reads it in a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):  # a shape
        return "x".join(map(str, value))
    return str(value)


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
