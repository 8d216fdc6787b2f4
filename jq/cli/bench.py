"""`jaxq bench`: how fast an artifact runs here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output, size


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
        typer.Option(metavar="IN.npz", help="Inputs; the recorded example by default."),
    ] = None,
    threads: options.Threads = 1,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure each.")] = 2.0,
) -> dict[str, Any]:
    """Measures latency (median, p90), throughput and peak memory in processes of their own."""
    from jq import api, npz
    from jq.bench import Job, bench, random_inputs

    def job(folder: Path) -> Job:
        loaded = api.load(folder)
        specs = loaded.inputs
        arrays = random_inputs(specs) if inputs is None else npz.read_exact(inputs, specs)
        assert isinstance(loaded.vmfb, Path)
        assert not isinstance(loaded.parameters, Mapping)
        return Job(loaded.vmfb, loaded.parameters, arrays)

    with out.progress() as progress:
        progress("load", None)
        folders = [artifact] if against is None else [artifact, against]
        jobs = [job(folder) for folder in folders]
        latencies = bench(jobs, threads=threads, seconds=seconds, progress=progress)
    documents = [latency.to_dict() for latency in latencies]
    rows = [
        {"artifact": str(folder), "peak memory": size(d["peak_rss_bytes"]), **d}
        for folder, d in zip(folders, documents, strict=True)
    ]
    columns = ("median_ms", "p90_ms", "min_ms", "calls_per_second", "runs", "peak memory")
    out.table(f"latency, {threads} threads", ("artifact", *columns), rows)
    return documents[0] if against is None else {**documents[0], "against": documents[1]}
