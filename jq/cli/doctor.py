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
    from jq import api

    with out.progress() as progress:
        return api.doctor(progress=progress)
