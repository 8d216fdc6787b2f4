"""`jaxq bench`: how fast an artifact runs here."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from jq.base.errors import UserError
from jq.base.tables import size
from jq.cli.command import command
from jq.cli.output import Output


@command(
    "bench", example="jaxq bench out/ --threads 1 --against float/", needs={"ssh python": "on"}
)
def bench_artifact(
    out: Output,
    artifact: Path,
    against: Path | None = None,
    inputs: Path | None = None,
    threads: int = 1,
    seconds: float = 5.0,
    on: list[str] | None = None,
    ssh: str = "ssh",
    python: str = "python3",
) -> dict[str, Any]:
    """Measures latency (median, 90th percentile), throughput and peak memory of an artifact.

    It is run in a process of its own, here or by `--on` on other machines.

    Args:
        against (DIR2): Another artifact, in turns with the first.
        inputs (IN.npz): Inputs; random values by default.
        seconds (0.1..1e6): How long to measure in all.
        on (HOST,...): Measure there, over ssh; jaxq is installed there.
        ssh (COMMAND): How to connect, with options.
        python (PATH): The interpreter there that has jaxq."""
    from jq.reporting.measuring.hosts import bench_on
    from jq.reporting.measuring.measure import bench

    title = f"latency, {threads} thread{'s' * (threads > 1)}"
    how: dict[str, Any] = {"against": against, "inputs": inputs}
    how |= {"threads": threads, "seconds": seconds}
    if on:
        hosts = [name for text in on for name in text.split(",")]
        with out.progress() as progress:
            far = bench_on(hosts, artifact, **how, ssh=ssh, python=python, progress=progress)
        columns = ("host", "processor", "median_ms", "p90_ms", "min_ms", "runs")
        rows = [{"host": host, **figures} for host, figures in far["hosts"].items()]
        out.table(title, columns if against is None else (*columns, "ratio"), rows)
        return far
    with out.progress() as progress:
        document = bench(artifact, **how, progress=progress)
    rows = [
        {"artifact": str(folder), "peak memory": size(figures["peak_rss_bytes"]), **figures}
        for folder, figures in ((artifact, document), (against, document.get("against")))
        if figures is not None
    ]
    columns = ("median_ms", "p90_ms", "min_ms", "calls_per_second", "runs", "peak memory")
    out.table(title, ("artifact", *columns), rows)
    return document


@command("run", example="jaxq run out/ --inputs in.npz --outputs out.npz", writes=True)
def run(
    out: Output,
    artifact: Path,
    inputs: Path,
    outputs: Path,
    threads: int = 1,
    verify: list[Path] | None = None,
    trust: str = "any",
    force: bool = False,
) -> dict[str, Any]:
    """Runs an artifact on the arrays of a file.

    Args:
        inputs (IN.npz): One array per input.
        outputs (OUT.npz): One array per output.
        force: Replace a file that holds other arrays than these outputs."""
    from jq import api
    from jq.base import npz
    from jq.base.system.files import check_file, check_new

    check_file(outputs)
    with out.progress() as progress:
        progress("load", None)
        compiled = api.load(artifact, threads=threads, verify=verify, trust=trust)
        with suppress(UserError):  # none is there, or it is none of arrays
            force |= {*npz.read(outputs)} == {spec.name for spec in compiled.outputs}
        check_new(outputs, force=force)
        arrays = npz.read_any(inputs, [size.inputs for size in compiled.sizes])
        progress("run", None)
        results = compiled.call_flat(arrays)
        compiled.warn_of_nan(arrays, results)
    named = {spec.name: array for spec, array in zip(compiled.outputs, results, strict=True)}
    npz.write(outputs, named)
    rows = [
        {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
        for name, array in named.items()
    ]
    out.table(str(outputs), ("name", "dtype", "shape"), rows)
    return {"path": str(outputs), "outputs": rows}
