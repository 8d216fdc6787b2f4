"""The bar that calls show by default: where a person looks, and gone when they are done."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import jq
from jq import progress
from jq.errors import UserError

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


def test_nobody_is_shown_anything_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert progress.default() is None
    jq.plan(model())
    assert capsys.readouterr().out == ""
