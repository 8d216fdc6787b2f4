"""Standard output holds the result and nothing else."""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

from jq.base.errors import Terminated, UserError
from jq.base.tables import SafeConsole
from jq.cli.command import COMMANDS, command
from jq.cli.output import Output, cell, classify, plain
from jq.frontends.tracing.source import _guard
from jq.passes.base import run_all

Captured = pytest.CaptureFixture[str]


def noisy(out: Output, word: str, number: int = 3) -> dict[str, object]:
    """Does everything a command may do."""
    print("a stray print, as in a user's model")
    out.table("title", ("name", "value"), [{"name": "[bold]x[/bold]", "value": 1.5}])
    out.note("a note")
    warnings.warn("mind this", UserWarning, stacklevel=1)
    warnings.warn("mind this", UserWarning, stacklevel=1)
    logging.getLogger("jq").info("a detail")
    logging.getLogger("jq").warning("and that")
    with out.progress() as progress:
        progress("trace", None)
        progress("trace", 0.5)
        progress("compile", None)
    if word == "refuse":
        raise UserError("no", op="dot", hint="say yes")
    if word == "long":
        raise UserError("a " + "x " * 50_000 + "b", hint="say less")
    if word == "break":
        raise ZeroDivisionError("bad\ninvariant")
    if word == "stop":
        raise KeyboardInterrupt
    return {"word": word, "number": number, "nan": np.float32("nan"), "array": np.arange(2)}


def invoke(*arguments: str) -> int:
    app = typer.Typer()
    command("noisy", example="jaxq noisy word")(noisy)
    run, epilog = COMMANDS.pop("noisy")
    app.command("noisy", epilog=epilog)(run)
    result = typer.main.get_command(app)(list(arguments), standalone_mode=False)
    return result if isinstance(result, int) else 0


def test_json_is_the_only_thing_on_standard_output(capsys: Captured) -> None:
    assert invoke("hello", "--json", "--number", "7") == 0
    captured = capsys.readouterr()
    expected = {"word": "hello", "number": 7, "nan": None, "array": [0, 1]}
    assert json.loads(captured.out) == expected
    for part in ("stray print", "title", "a note", "warning: mind this", "trace ..."):
        assert part in captured.err
    assert "warning: and that" in captured.err and captured.err.count("mind this") == 1
    assert "a detail" not in captured.err
    assert captured.err.count("trace ...") == 1


def test_tables_are_the_result_for_people(capsys: Captured) -> None:
    assert invoke("hello") == 0
    captured = capsys.readouterr()
    assert "[bold]x[/bold]" in captured.out
    assert "a note" not in captured.out


def test_quiet_leaves_progress_and_notes_out(capsys: Captured) -> None:
    invoke("hello", "-q", "--json")
    captured = capsys.readouterr()
    assert captured.err == "a stray print, as in a user's model\n"


@pytest.mark.parametrize(
    ("word", "code", "line"),
    [
        ("refuse", 2, "jaxq: error: no [dot]; say yes"),
        ("break", 1, "jaxq: internal error: ZeroDivisionError: bad invariant; --debug"),
        ("stop", 130, "jaxq: interrupted"),
    ],
)
def test_a_failure_is_one_line_and_a_code(
    word: str, code: int, line: str, capsys: Captured
) -> None:
    assert invoke(word, "--json") == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith(line)
    assert "Traceback" not in captured.err


def test_what_a_file_says_fills_no_screen(capsys: Captured) -> None:
    """Both ends stay: what is wrong, and what to do."""
    assert invoke("long", "-q") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert len(line) < 2100 and line.startswith("jaxq: error: a x x")
    assert "x ... " in line and line.endswith("x b; say less")


STARVED = {
    "library": ImportError("libX.so: failed to map segment from shared object"),
    "thread": RuntimeError("can't start new thread"),
    "XLA": RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes"),
    "Python": MemoryError(),
}


@pytest.mark.parametrize("lost", STARVED.values(), ids=STARVED)
def test_no_memory_is_what_is_said(lost: Exception) -> None:
    """As with `ulimit -v`; also where a pass is running, or a user's model is imported."""

    def run(*_: object) -> None:
        raise lost

    found: Any = SimpleNamespace(name="smooth", chosen=lambda _: True, run=run)
    program: Any = SimpleNamespace(verify=lambda: None)
    cx: Any = SimpleNamespace(settings=None)
    with pytest.raises(MemoryError, match=f"pass smooth: {lost}") as info:
        run_all([found], program, cx)
    with pytest.raises(type(lost)):
        _guard(run, "my.py", "cannot import")
    for error in (lost, info.value):
        code, line = classify(error)
        assert code == 1 and line.startswith("error: out of memory") and str(error) in line
    assert "memory" not in classify(ImportError("no X"))[1]


def test_only_what_writes_says_that_nothing_was_written() -> None:
    """`generate` said so in the middle of its text."""
    assert classify(KeyboardInterrupt()) == (130, "interrupted")
    assert classify(KeyboardInterrupt(), True) == (130, "interrupted; nothing was written")
    assert classify(Terminated(15), True) == (143, "terminated; nothing was written")


def test_verbose_shows_the_log(capsys: Captured) -> None:
    invoke("hello", "-v")
    assert "a detail" in capsys.readouterr().err


def test_debug_shows_the_traceback(capsys: Captured) -> None:
    assert invoke("break", "--debug") == 1
    assert "Traceback" in capsys.readouterr().err


def test_standard_output_is_given_back() -> None:
    before = sys.stdout
    invoke("break", "--json")
    assert sys.stdout is before


def test_values_of_a_document() -> None:
    value = {"a": (1, np.int64(2)), "b": float("inf"), 3: True, "path": UserError("x")}
    assert plain(value) == {"a": [1, 2], "b": None, "3": True, "path": "x"}


def test_cells() -> None:
    assert [cell(v) for v in (None, 0.123456789, 12, (2, 3), "x")] == [
        "-",
        "0.123457",
        "12",
        "2x3",
        "x",
    ]


def test_a_table_has_no_empty_column_and_what_is_copied_is_whole() -> None:
    out, text = Output(), io.StringIO()
    out.tables = SafeConsole(file=text, width=40, force_terminal=True, color_system=None)
    out.table("t", ("name", "kl", "n"), [{"name": "a", "kl": None, "n": 0}, {"name": "b"}])
    row = "| " + "cell | " * 20
    out.line(row, whole=True)
    assert row in text.getvalue()
    assert "name" in text.getvalue() and "n\n" in text.getvalue() and "kl" not in text.getvalue()
    out.line(row)
    assert text.getvalue().count(row) == 1  # a sentence is broken between words
