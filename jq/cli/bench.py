"""`jaxq bench`: how fast an artifact runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output
from jq.tables import size


def register(app: typer.Typer) -> None:
    command(app, "bench", example="jaxq bench out/ --threads 1 --against float/")(bench_artifact)


def bench_artifact(
    out: Output,
    artifact: options.Artifact,
    against: Annotated[
        Path | None,
        typer.Option(metavar="DIR2", help="Another artifact, measured in alternation."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="IN.npz", help="Inputs; random values by default."),
    ] = None,
    threads: options.Threads = 1,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=1e6, help="How long to measure in all.")
    ] = 5.0,
) -> dict[str, Any]:
    """Measures latency (median, p90), throughput and peak memory in processes of their own."""
    from jq.measuring.measure import bench

    with out.progress() as progress:
        document = bench(
            artifact,
            against=against,
            inputs=inputs,
            threads=threads,
            seconds=seconds,
            progress=progress,
        )
    rows = [
        {"artifact": str(folder), "peak memory": size(figures["peak_rss_bytes"]), **figures}
        for folder, figures in ((artifact, document), (against, document.get("against")))
        if figures is not None
    ]
    columns = ("median_ms", "p90_ms", "min_ms", "calls_per_second", "runs", "peak memory")
    out.table(f"latency, {threads} threads", ("artifact", *columns), rows)
    return document
