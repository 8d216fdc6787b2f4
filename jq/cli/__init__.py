"""The command line: `jaxq`, or `python -m jq`. A file has one command, or two alike."""

import atexit
import gc
import os
import signal
import sys
from io import TextIOWrapper
from typing import NoReturn

from jq.base.errors import Terminated
from jq.base.system.signals import ended_by

# New objects between two searches for garbage: importing and rewriting make many, and no cycles.
OBJECTS = 50_000
_arrived: list[int] = []  # signals that end the process


def main() -> NoReturn:
    """Runs `jaxq` with the process's arguments and exits with its code."""
    gc.set_threshold(OBJECTS)
    _open_streams()
    ended_by(_ending)
    os.environ["PYTHONSAFEPATH"] = "1"  # no Python that anyone starts runs files of this folder
    try:
        from jq.cli.app import main as run

        code = run()
    except KeyboardInterrupt:
        code = 130
    if code == 130 and _arrived:  # the library that reads arguments takes all for interrupts
        code = 128 + _arrived[-1]
        from jq.cli.output import REPORTED

        if not REPORTED:  # before or after the command, which reports its own
            print(f"jaxq: {'interrupted' if code == 130 else 'terminated'}", file=sys.stderr)
    if sys.gettrace() or sys.getprofile():  # whoever watches wants to see the end
        raise SystemExit(code)
    _leave(code)


def _open_streams() -> None:
    """Opens `/dev/null` for each stream that the caller has closed (`>&-`): the next file would get
    its number, and what libraries print to it. Standard output takes every text."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 (for good)
            setattr(sys, name, stream)
    if isinstance(sys.stdout, TextIOWrapper):  # a name that its encoding lacks ends no command
        sys.stdout.reconfigure(errors="backslashreplace")


def _ending(number: int) -> BaseException:
    """All signals end as an interrupt does: our processes end too, and nothing is left behind."""
    _arrived.append(number)
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


def _leave(code: int) -> NoReturn:
    """Ends the process without taking every object apart, which takes longer than some commands."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # nobody reads any more
            code = code or 1
    os._exit(code)
