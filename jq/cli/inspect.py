"""`jaxq inspect`: what an artifact holds, read from the artifact itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "inspect", example="jaxq inspect out/ --json")(inspect)


def inspect(
    out: Output,
    artifact: Annotated[
        Path,
        typer.Argument(metavar="DIR", show_default=False, help="An artifact, or a .gguf file."),
    ],
) -> dict[str, Any]:
    """Shows the stored bytes and format of every weight, the type of every contraction, and what
    stayed float."""
    from jq import api

    if artifact.suffix == ".gguf":
        return show_gguf(out, api.describe_gguf(artifact))
    audit = api.load(artifact).audit()
    out.show(Group(*audit.tables()))
    out.line(audit.summary())
    document: dict[str, Any] = audit.to_dict()
    return document


def show_gguf(out: Output, description: dict[str, Any]) -> dict[str, Any]:
    """The tensors of a GGUF file."""
    out.table("tensors", ("name", "shape", "format", "stored_bytes"), description["tensors"])
    return description
