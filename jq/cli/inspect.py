"""`jaxq inspect`: what an artifact holds, read from the artifact itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli.command import command
from jq.cli.output import Output, size


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
    audit: dict[str, Any] = api.load(artifact).audit().to_dict()
    show(out, audit)
    return audit


def show(out: Output, audit: Mapping[str, Any]) -> None:
    columns: tuple[str, ...] = (
        "name",
        "shape",
        "format",
        "granularity",
        "stored_bytes",
        "float_bytes",
    )
    out.table("weights", columns, audit["weights"])
    columns = ("name", "op", "lhs", "rhs", "acc", "kernel")
    out.table("contractions", columns, audit["contractions"])
    if audit["float_ops"]:
        out.table("stays float", ("name", "op", "reason"), audit["float_ops"])
    counts = Counter(f"{c['lhs']} x {c['rhs']} -> {c['acc']}" for c in audit["contractions"])
    out.line("contractions: " + (", ".join(f"{n} {t}" for t, n in counts.items()) or "none"))
    total = audit["module_bytes"] + audit["parameter_bytes"]
    share = total / max(audit["float_parameter_bytes"], 1)
    out.line(
        f"stored: module {size(audit['module_bytes'])} + parameters "
        f"{size(audit['parameter_bytes'])} = {size(total)}, "
        f"{share:.3f} of {size(audit['float_parameter_bytes'])} of float parameters"
    )


def show_gguf(out: Output, description: dict[str, Any]) -> dict[str, Any]:
    """The tensors of a GGUF file."""
    out.table("tensors", ("name", "shape", "format", "stored_bytes"), description["tensors"])
    return description
