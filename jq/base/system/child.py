"""Starts Python processes of ours, isolated from wherever the user happens to be.

`python -m` and `PYTHONPATH` look for modules in the current directory, so that a `resource.py`
beside an artifact would run. A child runs this file with `-I` instead: it sees the standard library
first, then what is installed, then the folder that holds this package, and nothing else."""

import importlib
import json
import signal
import sys
from pathlib import Path

_AGAIN = "run it once more; if it dies again, please report it: jaxq, or a compiler, has a defect"
_HINTS = {
    "SIGKILL": "the system ends so what takes too much memory: free some, or take a smaller model",
    "SIGTERM": "somebody has ended it: run it again",
    "SIGINT": "somebody has interrupted it: run it again",
    "SIGXCPU": "it has used up the processor time that it may take (`ulimit -t`)",
    "SIGXFSZ": "it has written a larger file than it may (`ulimit -f`)",
    "SIGBUS": "there may be no room left for its files (/tmp, /dev/shm), or the memory is broken",
}
_INSTALLED = ("site-packages", "dist-packages")


def python_command(module: str, *arguments: str) -> list[str]:
    """The command of a process that calls `main(*arguments)` of a module of ours."""
    installed = [p for p in sys.path if Path(p).name in _INSTALLED and Path(p).is_absolute()]
    here = str(Path(__file__).resolve().parents[3])  # a clone, perhaps
    folders = json.dumps(list(dict.fromkeys([*installed, here])))
    return [sys.executable, "-I", __file__, folders, module, *arguments]


def death(code: int) -> tuple[str, str]:
    """The death of a process with this negative return code, in words, and what to do."""
    name = signal_name(code)
    return f"died of {name}", _HINTS.get(name, _AGAIN)


def signal_name(code: int) -> str:
    """The signal of a negative return code; those for real time have a number alone."""
    return next((s.name for s in signal.Signals if s == -code), f"signal {-code}")


if __name__ == "__main__":
    _, _folders_text, _module, *_arguments = sys.argv
    sys.path += [p for p in json.loads(_folders_text) if p not in sys.path]
    importlib.import_module(_module).main(*_arguments)
