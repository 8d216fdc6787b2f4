"""Signals that end the process, where an exception would crash it or get lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jq.base.errors import XlaCrashed
from jq.base.system.child import death
from tests.support.jobs import ROOT

BEGIN = """
import signal, sys, time
sys.path.insert(0, {root!r})
from jq.base.errors import Terminated
from jq.base.system import signals
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signals.ended_by(Terminated)
try:
{body}
    time.sleep(60)
    sys.exit("nothing ended it")
except Terminated as ending:
    print("ended by", ending.number)
"""
# In a callback of the garbage collector and in a finalizer, exceptions are dropped.
DROPPED = {
    "callback": """
    import gc
    told = []
    gc.callbacks.append(lambda *_: told or (told.append(1), signal.raise_signal(15)))
    gc.collect()
""",
    "finalizer": """
    def use():
        class Last:
            def __del__(self):
                signal.raise_signal(15)
        Last()
    use()
""",
}
LIBRARY = """
import signal
try:
    signal.raise_signal(15)
    for i in range(1000):
        pass
except BaseException:
    raise SystemExit("a library was interrupted")
whole = True
"""
ENDLESS = """
import signal
import time

signal.raise_signal(15)
time.sleep(60)
"""


def ended(body: str, *folders: Path) -> str:
    code = BEGIN.format(root=str(ROOT), body=body)
    command = [sys.executable, "-c", code, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", DROPPED)
def test_an_exception_that_python_drops_comes_again(name: str) -> None:
    assert ended(DROPPED[name]) == f"ended by {signal.SIGTERM.value}\n"


@pytest.mark.parametrize(("text", "patience"), [(LIBRARY, 60), (ENDLESS, 0.1)])
def test_a_library_is_imported_whole(text: str, patience: float, tmp_path: Path) -> None:
    """Code that C++ calls must not raise: MLIR's bindings crashed the process. But what never ends
    is interrupted."""
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "a_library.py").write_text(text)
    body = f"""
    sys.path.insert(0, sys.argv[1])
    signals.PATIENCE = {patience}
    import a_library
    assert a_library.whole
"""
    assert ended(body, place) == f"ended by {signal.SIGTERM.value}\n"


def test_a_signal_that_has_no_name_is_told_by_its_number() -> None:
    number = signal.SIGRTMIN + 1
    assert death(-number)[0] == f"died of signal {number}"
    assert f"(signal {number})" in str(XlaCrashed(-number))
    assert "(SIGSEGV)" in str(XlaCrashed(-signal.SIGSEGV))
