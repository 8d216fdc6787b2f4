"""Progress: stages tell their callers how far they are."""

import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jq.base.errors import UserError, check_type

# Told the name of what runs now and the share of it that is done (None: not known).
Progress = Callable[[str, float | None], None]


def silent(stage: str, share: float | None) -> None:
    """Progress that nobody looks at."""


def heard(progress: Progress | None) -> Progress:
    """The given function, if it can be told a stage and a share; `silent` without one."""
    check_type("progress", progress, Callable, type(None))
    try:
        inspect.signature(progress or silent).bind("", None)
    except (TypeError, ValueError) as error:  # a built-in function may tell nothing of itself
        raise UserError(f"progress takes no stage and share: {error}") from error
    return progress or silent


class Bar:
    """A spinner, the stage, how far it is and how long it has taken; gone when it is stopped."""

    def __init__(self, console: Any) -> None:
        self.console: Any = console
        self._live: Any = None

    def __call__(self, stage: str, share: float | None) -> None:
        live: Any = self._live or self._start(stage)
        (task,) = live.tasks
        if task.description != stage:
            live.reset(task.id, description=stage)
        live.update(task.id, total=None if share is None else 1.0, completed=share or 0.0)

    def _start(self, stage: str) -> Any:
        from rich import progress as rich

        description = rich.TextColumn("{task.description}", markup=False)
        columns = rich.SpinnerColumn(), description, rich.BarColumn(), rich.TimeElapsedColumn()
        self._live = rich.Progress(*columns, console=self.console, transient=True)
        self._live.add_task(stage, total=None)
        self._live.start()
        return self._live

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class Line(Bar):
    """The stage and how far it is, below the cell of a notebook; empty when it is stopped. (rich's
    own bar needs ipywidgets there, and warns without.)"""

    def __init__(self, show: Callable[..., Any]) -> None:
        super().__init__(None)
        self._show, self._text = show, ""

    def __call__(self, stage: str, share: float | None) -> None:
        self._write(stage if share is None else f"{stage} {share:.0%}")

    def _write(self, text: str) -> None:
        if text == self._text:
            return
        self._text = text
        if self._live is None:
            self._live = self._show({"text/plain": text}, raw=True, display_id=True)
        else:
            self._live.update({"text/plain": text}, raw=True)

    def stop(self) -> None:
        self._write("")
        self._live = None


def default() -> Progress | None:
    """The progress of a call that was given none: a bar where a person looks, in a terminal or a
    notebook; None anywhere else."""
    if "ipykernel" in sys.modules:
        from IPython.display import display

        return Line(display)
    if sys.stderr.isatty():
        from rich.console import Console

        return Bar(Console(stderr=True))
    return None


@dataclass
class Stages:
    """Tells the user which stage runs, and keeps how long each took."""

    progress: Progress | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def shown(progress: Progress | None) -> "Stages":
        """Stages with what a call was given, or with what is shown without."""
        return Stages(default() if progress is None else heard(progress))

    @contextmanager
    def __call__(self, name: str) -> Iterator[Callable[[float | None], None]]:
        def report(share: float | None) -> None:
            if self.progress:
                self.progress(name, share)

        report(None)
        start = time.perf_counter()
        try:
            yield report
        finally:
            if isinstance(self.progress, Bar):
                self.progress.stop()  # what comes next may print
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
