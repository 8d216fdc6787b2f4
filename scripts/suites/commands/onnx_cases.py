"""Runs every node case of the onnx package, and checks the list of exclusions both ways.

    scripts/suite.py onnx_cases [PATTERN]

Prints the share that passes of those that are not training, strings or `ai.onnx.ml`.
"""

from __future__ import annotations

import re
from typing import Annotated

import typer

from jq.base.errors import UserError
from tests.frontends.onnx.node_cases import cases, excluded, run

OUTSIDE = ("training", "strings", "the domain ai.onnx.ml")


def main(pattern: Annotated[str, typer.Argument(help="Cases whose name has this.")] = "") -> None:
    chosen = {name: case for name, case in cases().items() if re.search(pattern, name)}
    passed, wrong = 0, []
    for name, case in chosen.items():
        why = excluded(name)
        try:
            run(case)
        except (UserError, AssertionError) as error:
            if not why:
                wrong.append(f"{name} fails: {str(error).strip().partition(chr(10))[0]}")
        else:
            passed += 1
            if why:
                wrong.append(f"{name} passes, and is listed: {why}")
    counted = sum(excluded(name) not in OUTSIDE for name in chosen)
    print("\n".join(wrong))
    print(
        f"{passed} of {counted} pass ({passed / max(counted, 1):.1%}); listed wrongly: {len(wrong)}"
    )
    raise typer.Exit(int(bool(wrong)))
