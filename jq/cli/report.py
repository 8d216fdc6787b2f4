"""`jaxq report`: the error page of an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "report", example="jaxq report my.py:model out/ -o report.html")(report)


def report(
    out: Output,
    model: options.Model,
    artifact: options.Artifact,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.html", help="The page.")],
    inputs: options.Samples = None,
    metric: options.Metrics = None,
    labels: options.Labels = None,
    calibration: options.Calibration = None,
    samples: Annotated[
        int, typer.Option(min=1, metavar="N", help="Samples for layers and histograms.")
    ] = 16,
    force: options.Force = False,
) -> dict[str, Any]:
    """Writes one HTML page that needs no network: layers by error, histograms with their clipping,
    sizes, latency, and the plan with its reasons."""
    from jq.page import report as write_page
    from jq.system.files import check_new

    check_new(output, force=force)
    with out.progress() as progress:
        write_page(
            model,
            artifact,
            output,
            data=inputs,
            metric=metric or None,
            labels=options.read_labels(labels),
            calibration=calibration,
            samples=samples,
            progress=progress,
        )
    out.line(f"wrote {output}")
    return {"path": str(output)}
