"""The command line: `jaxq`, or `python -m jq`. One file a command, over `jq.api`."""

from __future__ import annotations


def main() -> None:
    """Runs `jaxq` with the process's arguments and exits with its code."""
    from jq.cli.app import main as run

    raise SystemExit(run())
