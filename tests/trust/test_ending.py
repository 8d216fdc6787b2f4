"""A run that is ended: no process goes on, no temporary folder stays, and what was there
before is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import jq.base.system.folders as folders
from jq.artifact.save import ABANDONED
from jq.driver.loading import load
from jq.iree.compiler import compile_module
from tests.trust.artifacts import SAVED, copy_of

MODULE = """func.func public @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = stablehlo.dot %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}"""
# In place of the compiler: a program that never ends, and says who it is.
FOREVER = "#!/bin/sh\necho $$ > {0}\nsleep 600\n"


def running(folder: Path) -> list[str]:
    """Commands of processes that work somewhere in a folder, or know it by its name."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in environment and command:
            found.append(command.replace(b"\0", b" ").decode())
    return found


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_while_the_compiler_runs(ending: signal.Signals, tmp_path: Path) -> None:
    temporary, pid = tmp_path / "temporary", tmp_path / "pid"
    temporary.mkdir()
    (tmp_path / "m.mlir").write_text(MODULE)
    (tmp_path / "compiler").write_text(FOREVER.format(pid))
    (tmp_path / "compiler").chmod(0o755)
    code = (
        # Started in the background, this test has it ignored, and so would its child.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "import jq.iree.compiler as c; from jq.cli import main\n"
        f"tool = c.find_tool; c.find_tool = lambda n: {str(tmp_path / 'compiler')!r}"
        " if n == 'iree-compile' else tool(n)\n"
        "main()"
    )
    command = ["compile", "m.mlir", "-o", "out", "--no-cache", "-q"]
    started = subprocess.Popen(
        [sys.executable, "-c", code, *command],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not pid.exists() or not pid.read_text():
        assert started.poll() is None, started.stderr and started.stderr.read()
        time.sleep(0.02)
    assert len(running(temporary)) > 1
    started.send_signal(ending)
    _, said = started.communicate(timeout=60)
    assert started.returncode == (130 if ending == signal.SIGINT else 128 + ending), said
    assert said.splitlines()[-1].endswith("nothing was written")
    end = time.monotonic() + 20  # what is killed takes a moment to go
    while running(temporary) and time.monotonic() < end:
        time.sleep(0.05)
    assert running(temporary) == [] and not list(temporary.iterdir())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_before_the_command(number: signal.Signals) -> None:
    """While the library that reads arguments runs, which ends without a word."""
    code = (
        "import signal, importlib.metadata as m; from jq.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"m.version = lambda name: signal.raise_signal({number}); main()"
    )
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = "interrupted" if number == signal.SIGINT else "terminated"
    assert (done.returncode, done.stderr) == (128 + number, f"jaxq: {said}\n")


def test_as_soon_as_the_compiler_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the line that knows the process: it would go on for as long as it likes."""
    started: list[subprocess.Popen[bytes]] = []

    def interrupted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(Popen(["sleep", "600"], **options))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    Popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            compile_module(MODULE.encode())
    finally:
        signal.signal(signal.SIGINT, before)
    assert started[0].returncode == -signal.SIGKILL


def test_between_two_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that cannot change places at once: the old one comes back."""
    folder, rename = copy_of(tmp_path), Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if Path(target) == folder and not path.name.endswith(".old"):
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(folders, "exchange", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(SAVED).save(folder, force=True)
    assert load(folder).inputs
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_what_a_killed_run_left_is_removed_later(tmp_path: Path) -> None:
    """Beside an artifact, an hour later, and only what we could have written."""
    long_ago = time.time() - 2 * ABANDONED
    for name, file in (("old", "model.vmfb"), ("new", "model.vmfb"), ("other", "thesis.txt")):
        left = tmp_path / f".artifact.{name}"
        left.mkdir()
        (left / file).touch()
        if name != "new":
            os.utime(left, (long_ago, long_ago))
    load(SAVED).save(tmp_path / "artifact")
    assert {path.name for path in tmp_path.iterdir()} == {
        "artifact",
        ".artifact.new",
        ".artifact.other",
    }
