"""The command line: `jaxq`, or `python -m jq`. One file a command, over `jq.api`."""

from __future__ import annotations

import gc
import sys

# New objects between two searches for garbage: importing and rewriting make many, and no cycles.
OBJECTS = 50_000


def main() -> None:
    """Runs `jaxq` with the process's arguments and exits with its code."""
    gc.set_threshold(OBJECTS)
    try:
        from jq.cli.app import main as run

        code = run()
    except KeyboardInterrupt:  # before or after the command, which reports its own
        print("jaxq: interrupted", file=sys.stderr)
        code = 130
    raise SystemExit(code)
