"""Every script in Python says what it takes, and there are few of them to choose from."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys

import pytest

from tests.support.child import SCRIPTS, Child

GROUPS = {"suite": "suites/commands", "benchmark": "benchmarks", "check": "checks"}
NAMED = [
    f"{script} {path.stem}"
    for script, folder in GROUPS.items()
    for path in sorted((SCRIPTS / folder).glob("*.py"))
    if path.stem != "__init__"
]
ALONE = sorted({p.stem for p in SCRIPTS.glob("*.py")} - {"minilm_subset"})  # which is a model


def help_of(command: str) -> tuple[str, object]:
    """The output of `scripts/COMMAND --help`, and the code that it ends with."""
    script, *name = command.split()
    before, environment = sys.path[:], dict(os.environ)
    sys.argv = [f"{script}.py", *name, "--help"]
    code: object = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")
        except SystemExit as end:
            code = end.code
    sys.path[:] = before
    os.environ.clear()
    os.environ.update(environment)
    return printed.getvalue(), code


@pytest.mark.parametrize("command", [*ALONE, *NAMED])
def test_a_script_has_help(child: Child, command: str) -> None:
    text, code = child.call(help_of, command)
    assert not code
    assert "usage:" in text.lower() and "--help" in text


def test_an_unknown_name_is_answered_with_the_known_ones(child: Child) -> None:
    _, code = child.call(help_of, "suite harness")
    assert isinstance(code, str) and "there is no 'harness'; known: calls, " in code


def test_there_are_25_entries_at_most() -> None:
    assert len([p for p in SCRIPTS.iterdir() if p.name != "__pycache__"]) <= 25
