#!/usr/bin/env python
"""Every option of every command, as the page docs/reference/options.md:

scripts/options_page.py > docs/reference/options.md
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jq.cli.app import HELP, commands
from jq.cli.command import COMMON, LIMITS

HEAD = """# Options

Every option of every command, as `jaxq COMMAND --help` has them. [Command line](command-line.md)
says what all commands have in common and what they print. This page is printed by
`scripts/options_page.py`; do not edit it.

"""
EVERYWHERE = {*COMMON, *LIMITS, "help"}


def markdown() -> str:
    """The options that all commands have, then each command with its own."""
    leaves = list(_leaves(commands(), "jaxq"))
    parts = ["## Every command\n", _table(_parameters(leaves[0][1], EVERYWHERE))]
    for path, command in leaves:
        own = [p for p in command.get_params(_context(command)) if p.name not in EVERYWHERE]
        about = " ".join((command.help or "").split("\n\n")[0].split())
        parts += [f"## `{path}`\n", f"{about}\n", *([_table(own)] if own else [])]
    return HEAD + "\n".join(parts)


def _leaves(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _context(command: Any) -> typer.Context:
    return typer.Context(command, help_option_names=HELP)


def _parameters(command: Any, names: set[str]) -> list[Any]:
    return [p for p in command.get_params(_context(command)) if p.name in names]


def _table(parameters: Sequence[Any]) -> str:
    rows = ["| option | value | default | |", "|---|---|---|---|"]
    for p in parameters:
        argument = p.param_type_name == "argument"
        names = (
            [p.metavar or p.name.upper()]
            if argument
            else [*sorted(p.opts, key=len), *p.secondary_opts]
        )
        value = "" if argument or getattr(p, "is_flag", False) else p.metavar or "N"
        cells = (", ".join(f"`{n}`" for n in names), value and f"`{value}`", _default(p), p.help)
        rows.append(f"| {' | '.join((cell or '').replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if parameter.default in (None, False, [], ()) or callable(parameter.default):
        return ""
    return "on" if parameter.default is True else f"`{parameter.default}`"


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    print(markdown(), end="")
