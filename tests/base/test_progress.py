"""The bar that calls show by default: where a person looks, and gone when they are done."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import jq
from jq.base import progress
from jq.base.errors import UserError

X = np.ones((2, 4), np.float32)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def model() -> jq.Model:
    return jq.Model(lambda p, x: x @ p["w"], {"w": np.ones((4, 4), np.float32)}, (X,))


def test_a_terminal_is_shown_the_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    jq.plan(model())
    assert "trace" in screen.getvalue() and "plan" in screen.getvalue()
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h")
    shown = screen.tell()
    jq.plan(model(), progress=progress.silent)
    assert screen.tell() == shown
    with pytest.raises(UserError):
        jq.plan(jq.Model(lambda p, x: x.nothing, {}, (X,)))
    assert screen.getvalue().count("\x1b[?25l") == screen.getvalue().count("\x1b[?25h")


def test_a_notebook_is_shown_a_line_that_ends_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            seen.append(data["text/plain"])

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        seen.append(data["text/plain"])
        return Handle()

    monkeypatch.setitem(sys.modules, "ipykernel", object())
    monkeypatch.setattr("IPython.display.display", display)
    jq.plan(model())
    assert seen[0].startswith("trace") and "plan" in seen and seen[-1] == ""


def test_nobody_is_shown_anything_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert progress.default() is None
    jq.plan(model())
    assert capsys.readouterr().out == ""


def test_what_takes_no_stage_is_refused() -> None:
    for wrong in (lambda: None, lambda stage: None, max):
        with pytest.raises(UserError, match="takes no stage and share"):
            jq.plan(model(), progress=wrong)
