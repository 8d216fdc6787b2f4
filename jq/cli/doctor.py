"""`jaxq doctor`: is this machine able to run what we compile?"""

from __future__ import annotations

from typing import Any

import typer

from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "doctor", example="jaxq doctor --json")(doctor)


def doctor(out: Output) -> dict[str, Any]:
    """Shows versions, CPU features, drivers and threads, and tests integer results here."""
    from jq.doctor import examine

    with out.progress() as progress:
        document = examine(progress)
    facts = {**document["versions"], **document["cpu"], "drivers": document["drivers"]}
    rows = [
        {"what": key, "here": " ".join(value) if isinstance(value, list) else value}
        for key, value in facts.items()
    ]
    out.table("this machine", ("what", "here"), rows)
    tests = [
        {**t, "result": "equal bits" if t["passed"] else t["reason"]} for t in document["self_test"]
    ]
    out.table("integer products against NumPy", ("target", "result"), tests)
    if not document["ok"]:
        out.code = 1
    return document
