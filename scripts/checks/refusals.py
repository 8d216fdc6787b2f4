"""Holds `jaxq check` against what planning then does, for every model and target of the tests.

    scripts/check.py refusals [PATTERN]

Without data on one side, with calibrated ranges on the other; prints what differs.
"""

from __future__ import annotations

import re
from typing import Annotated

import typer

from tests.device.against_planning import TARGETS, compared, models


def main(pattern: Annotated[str, typer.Argument(help="Models whose name has this.")] = "") -> None:
    cases = refused = differ = 0
    for name, model in models().items():
        if not re.search(pattern, name):
            continue
        for target in TARGETS:
            found, then = compared(model, target)
            cases, refused = cases + 1, refused + len(then)
            if found != then:
                differ += 1
                print(f"{name} on {target}: check says {found}, planning {then}")
    print(f"{cases} cases, {refused} refusals, {differ} differ")
    raise typer.Exit(1 if differ else 0)
