"""`jaxq doctor`: is this machine able to run what we compile?"""

from __future__ import annotations

from typing import Any

import typer

from jq.base.tables import size
from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "doctor", example="jaxq doctor --json")(doctor)


def doctor(out: Output) -> dict[str, Any]:
    """Tests integer results on this machine, and shows versions and processor features.

    Names the installed versions that are known to be wrong, and what is done about it.
    With memory, folders and variables this is what the report of a bug needs. Exit code 1: a result
    is wrong.
    """
    from jq.reporting.doctor import examine

    with out.progress() as progress:
        document = examine(progress)
    kinds = ("versions", "cpu", "system", "environment")
    facts = {key: value for kind in kinds for key, value in document[kind].items()}
    facts |= {k: size(v) for k, v in facts.items() if k.endswith("_bytes") and v is not None}
    facts["drivers"] = document["drivers"]
    rows = [
        {"what": key, "here": " ".join(value) if isinstance(value, list) else value}
        for key, value in facts.items()
    ]
    out.table("this machine", ("what", "here"), rows)
    defects = document["known_defects"]
    if defects:
        out.table("known to be wrong in these versions", ("version", "wrong", "remedy"), defects)
    tests = [
        {**t, "result": "equal bits" if t["passed"] else t["reason"]} for t in document["self_test"]
    ]
    out.table("integer products against NumPy", ("target", "result"), tests)
    if not document["ok"]:
        out.code = 1
    return document
