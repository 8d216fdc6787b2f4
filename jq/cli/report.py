"""`jaxq report`: the error page of an artifact."""

from pathlib import Path
from typing import Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output


@command("report", example="jaxq report my.py:model out/ -o report.html", writes=True)
def report(
    out: Output,
    context: typer.Context,
    model: options.Model,
    artifact: options.Artifact,
    output: Path,
    inputs: options.Samples = None,
    metric: options.Metrics = None,
    labels: options.Labels = None,
    calibration: options.Calibration = None,
    samples: int = 16,
    seconds: float = 2.0,
    model_explorer: Path | None = None,
    force: options.Force = False,
) -> dict[str, Any]:
    """Writes one HTML page on the error of an artifact.

    It needs no network, and shows a verdict, rules to try, the model's graph coloured by error, the
    error of every layer, histograms, sizes, the latency beside the float model's, and the plan with
    its reasons.

    Args:
        output (-o FILE.html): The page.
        samples (N 1..): Samples for layers and histograms.
        seconds (0.01..1e6): Measuring time of each latency.
        model_explorer (FOLDER): Also the graph and its errors for Model Explorer.
    """
    from jq.base.system.files import check_folder, check_new
    from jq.reporting.report import report as write_page

    check_new(output, force=force)
    if model_explorer:
        check_folder(model_explorer, force=force)
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
            seconds=seconds,
            model_explorer=model_explorer,
            command=context.obj,
            progress=progress,
        )
    out.line(f"wrote {output}")
    if model_explorer:
        out.line(f"wrote {model_explorer}: open graph.json in Model Explorer, add the others to it")
    return {"path": str(output)}
