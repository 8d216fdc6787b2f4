"""Tests of pytest one after the other, each within a time: one that hangs or crashes is an outcome.

Here the process that runs the tests is started, watched, and started again after a test that ended
it. In that process (`-p suites.reported`) this module is a plugin that says which test begins, and
how each ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1]
START = 120.0  # seconds in which pytest collects tests, with what they import
MENDED = "[XPASS(strict)]"
_PIPE = "REPORTED_PIPE"  # number of the file that the plugin writes to


def outcomes(
    tests: Sequence[str], environment: Mapping[str, str], folder: Path, limit: float
) -> Iterator[tuple[str, str]]:
    """Names and outcomes of tests: `mended`, `there` (a defect), `passed`, `failed`, `skipped`,
    `crashed`, or `endless` (`limit` seconds without an end).

    Args:
        tests: what pytest is given: names of tests, files, folders.
        folder: where it runs.
        limit: seconds of one test.
    """
    done: list[str] = []
    while True:
        begun = ""
        skip = [f"--deselect={name}" for name in done]
        for event in _events([*tests, *skip], environment, folder, limit):
            if "begins" in event:
                begun = event["begins"]
            elif "end" in event:
                if not begun:
                    yield "(collecting)", event["end"]
                    return
                done.append(begun)
                yield begun, event["end"]
                break
            else:
                done.append(begun)
                yield begun, event["outcome"]
                begun = ""
        else:
            return


def _events(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, limit: float
) -> Iterator[dict[str, Any]]:
    """Events from the plugin; `end` where the process crashed, or was ended after `limit`."""
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # A warning of another version is no defect of it.
    command += ["-p", "suites.reported", "-W", "default", *arguments]
    searched = os.pathsep.join([environment.get("PYTHONPATH", ""), str(SCRIPTS)]).strip(os.pathsep)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, _PIPE: str(writer), "PYTHONPATH": searched},
        pass_fds=[writer],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(writer)
    whole, patience = False, max(limit, START)
    with open(reader, "rb", buffering=0) as pipe:
        try:
            while select.select([pipe], [], [], patience)[0]:
                line = pipe.readline()
                if not line:
                    break
                event, patience = json.loads(line), limit
                whole = event == {"whole": True}
                if not whole:
                    yield event
            else:
                yield {"end": "endless"}
                return
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with what it has started
            process.wait()
    if not whole:
        yield {"end": "crashed"}


def outcome(report: Any) -> str | None:
    """The outcome in a report of pytest; None where the test goes on."""
    expected = hasattr(report, "wasxfail")
    if report.skipped:
        return "there" if expected else "skipped"
    if report.failed:
        mended = str(report.longrepr).startswith(MENDED)
        return "mended" if mended else "failed"
    return "passed" if report.when == "call" else None


def _say(event: Mapping[str, Any]) -> None:
    os.write(int(os.environ[_PIPE]), json.dumps(event).encode() + b"\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    _say({"begins": nodeid})


_said: set[str] = set()


def pytest_runtest_logreport(report: Any) -> None:
    found = outcome(report)
    if found is not None and report.nodeid not in _said:  # not again for what follows the test
        _said.add(report.nodeid)
        _say({"outcome": found})


def pytest_sessionfinish() -> None:
    _say({"whole": True})
