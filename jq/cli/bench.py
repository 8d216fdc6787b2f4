"""`jaxq bench`: how fast an artifact runs here."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output, size


def register(app: typer.Typer) -> None:
    command(app, "bench", example="jaxq bench out/ --threads 1 --against float/")(bench)


def bench(
    out: Output,
    artifact: options.Artifact,
    against: Annotated[
        Path | None,
        typer.Option(metavar="DIR2", help="Another artifact, measured in alternation."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="IN.npz", help="Inputs; the recorded example by default."),
    ] = None,
    threads: options.Threads = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure.")] = 5.0,
) -> dict[str, Any]:
    """Measures latency (median, p90), throughput and peak memory."""
    from jq import api, npz
    from jq.bench import measure, peak_rss_bytes, random_inputs

    with out.progress() as progress:
        progress("load", None)
        places = [artifact] if against is None else [artifact, against]
        models = [api.load(place, threads=threads) for place in places]
        arrays = [
            random_inputs(m.inputs) if inputs is None else npz.read_exact(inputs, m.inputs)
            for m in models
        ]
        calls = [partial(m.call_flat, a) for m, a in zip(models, arrays, strict=True)]
        timings = [timing.to_dict() for timing in measure(calls, seconds, progress)]
    rows = [{"artifact": str(p), **t} for p, t in zip(places, timings, strict=True)]
    columns = ("artifact", "median_ms", "p90_ms", "min_ms", "calls_per_second", "runs")
    out.table("latency", columns, rows)
    out.line(f"peak memory of this process {size(peak_rss_bytes())}")
    document = {**timings[0], "threads": threads or 1, "peak_rss_bytes": peak_rss_bytes()}
    if against is not None:
        document["against"] = timings[1]
    return document
