"""Follows all tutorials in one folder, one after the other, in a terminal of 80 columns.

What a page writes must not be in the way of the next, and what is printed must fit: sentences and
tables are broken between words alone. `--keep DIR` leaves the folder, with `printed.txt`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from jq.base.tables import SafeConsole
from jq.cli import output
from tests.docs.blocks import ROOT, Reader, blocks

COLUMNS = 80
PAGES = (
    *("first-model", "int4", "npu-target", "error-report"),
    *("quantization-aware-training", "deploy", "npu-deploy"),
)


class Terminal(SafeConsole):
    """As wide as it is, and everything in it is kept."""

    def __init__(self, printed: Any) -> None:
        super().__init__(file=printed, width=COLUMNS, force_terminal=True, color_system=None)


class Tourist(Reader):
    """Enters every command as the page has it, and sees what it prints."""

    def enter(self, words: list[str], code: int) -> None:
        print(f"$ {' '.join(words)}", file=self.names["printed"])
        super().enter(words, code)


def main(
    pages: Annotated[list[str] | None, typer.Argument(help=", ".join(PAGES))] = None,
    keep: Annotated[Path | None, typer.Option(help="A folder for what is written.")] = None,
) -> None:
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        sys.path.insert(0, str(Path.cwd()))
        printed = stack.enter_context(open("printed.txt", "w+", encoding="utf-8"))
        terminal = Terminal(printed)
        made = output.console
        output.console = lambda stream: made(stream) if stream is sys.stderr else terminal
        stack.callback(setattr, output, "console", made)
        for page in pages or PAGES:
            print(page, flush=True)
            follow(page, printed)
        wide = too_wide(printed)
    print(f"{len(pages or PAGES)} pages in one folder; {len(wide)} lines are too wide")
    sys.exit("\n".join(wide) if wide else 0)


def follow(page: str, printed: Any) -> None:
    """A page by a reader who has the files of the pages before it."""
    found = blocks(ROOT / "docs" / "tutorials" / f"{page}.md")
    names = {"__name__": "__main__", "printed": printed}
    reader = Tourist(names, quiet=False)
    for block in found:
        if block.title != "printed":  # `tests/docs` compares what is shown
            reader.follow(block)


def too_wide(printed: Any) -> list[str]:
    """Lines that leave the terminal, but for commands to copy."""
    printed.seek(0)
    lines = printed.read().splitlines()
    return [x for x in lines if len(x) > COLUMNS and not x.startswith(("  ", "$ "))]
