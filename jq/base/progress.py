"""Progress: stages tell their callers how far they are."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jq.base.errors import check_type

# Told the name of what runs now and the share of it that is done (None: not known).
Progress = Callable[[str, float | None], None]


def silent(stage: str, share: float | None) -> None:
    """Progress that nobody looks at."""


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
        live: Any = rich.Progress(*columns, console=self.console, transient=True)
        live.add_task(stage, total=None)
        live.start()
        self._live = live
        return live

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class Line(Bar):
    """The stage and how far it is, below the cell of a notebook; empty when it is stopped. (rich's
    own bar needs ipywidgets there, and warns without.)"""

    def __init__(self, show: Callable[..., Any]) -> None:
        super().__init__(None)
        self._show = show
        self._text = ""

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
        check_type("progress", progress, Callable, type(None))
        return Stages(progress or default())

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
