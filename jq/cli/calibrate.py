"""`jaxq calibrate`: the ranges of every activation, to be used again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    example = "jaxq calibrate my.py:model --data samples.npz -o ranges.json"
    command(app, "calibrate", example=example)(calibrate)


def calibrate(
    out: Output,
    model: options.Model,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="RANGES.json", help="Where they go.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Samples; the model's own by default."),
    ] = None,
    settings: options.Settings = None,
    sizes: options.Sizes = None,
    values: options.Values = None,
) -> dict[str, Any]:
    """Observes the activations of the float model on samples and saves their ranges."""
    from jq import api
    from jq.system.files import check_file

    check_file(output)
    with out.progress() as progress:
        ranges = api.calibrate(
            options.sized(model, sizes, values), data, settings=settings, progress=progress
        )
    ranges.save(output)
    out.line(f"wrote {output}")
    return {"path": str(output), "tensors": len(ranges.sites)}
