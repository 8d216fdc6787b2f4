#!/usr/bin/env python3
"""Benchmarks models on this device, float through IREE and through `jax.jit` always beside them.

    scripts/benchmark_device.py jq.models:minilm jq.models:digits_cnn \\
        --pipeline int8-dynamic --pipeline int8-static --threads 1 --threads 2 -o build/benchmark

Every program runs in a process of its own; the programs of one model run in turns, so that a
slow moment of the machine hits all alike. Writes results.json, results.svg and results.png.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from jq import api
from jq.api import compare
from jq.base.errors import JqError
from jq.base.system.processor import peak_rss_bytes, this_processor
from jq.driver.comparison.outputs import samples_of
from jq.frontends.model import Batch, Model, batches
from jq.reporting import doctor
from jq.reporting.benchmark.session import Job, Session, measure, random_inputs, worker_command
from jq.reporting.benchmark.worker import serve

FLOAT = "float"
console = Console(stderr=True)


@dataclass(frozen=True)
class Built:
    """One program of a model, compiled and saved."""

    pipeline: str
    target: str
    job: Job
    compile_seconds: float
    artifact_bytes: int
    error: dict[str, Any]


def benchmark(
    models: Annotated[list[str], typer.Argument(help="Models, as for `jaxq compile`.")],
    pipeline: Annotated[list[str], typer.Option(help="May be repeated.")] = ["int8-dynamic"],  # noqa: B006
    target: Annotated[list[str], typer.Option(help="May be repeated.")] = ["llvm-cpu"],  # noqa: B006
    threads: Annotated[list[int], typer.Option(help="May be repeated.")] = [1],  # noqa: B006
    seconds: Annotated[float, typer.Option(help="Measuring time of each program.")] = 3.0,
    samples: Annotated[int, typer.Option(help="Batches for the error against float.")] = 16,
    output: Annotated[Path, typer.Option("-o", help="Directory.")] = Path("build/benchmark"),
) -> None:
    """Latency, throughput, memory, size, compile time and error of every combination."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="jaxq-") as work:
        for name in models:
            folder = Path(work) / f"model{len(rows)}"
            built, size = build_all(name, pipeline, target, folder, samples)
            for n in threads:
                rows += run_all(name, built, n, seconds, size)
    output.mkdir(parents=True, exist_ok=True)
    machine = {"cpu": doctor.describe(this_processor()), "versions": doctor.versions()}
    document = {"machine": machine, "rows": rows}
    (output / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    plot(rows, output)
    print_table(rows)


def build_all(
    name: str, pipelines: list[str], targets: list[str], folder: Path, count: int
) -> tuple[list[Built], int]:
    """Every program of a model, and the samples in one call."""
    source = api.trace(name)
    inputs = inputs_of(source)
    data = (batches(source.model.evaluation) or [])[:count] if source.model else []
    built = []
    folder.mkdir()
    for target in targets:
        for pipeline in dict.fromkeys([FLOAT, *pipelines]):
            console.print(f"{name}: compiling {pipeline} for {target}")
            built.append(build(source, pipeline, target, inputs, data, folder))
    return built, samples_of(inputs)


def inputs_of(source: api.Source) -> Sequence[np.ndarray]:
    """The model's example, or random values where it gives shapes alone."""
    if source.model is not None and not shapes_alone(source.model):
        calls = source.calls([source.model.example_inputs])
        if calls:
            return calls[0]
    return random_inputs(source.program.inputs)


def shapes_alone(model: Model) -> bool:
    import jax

    leaves = jax.tree.leaves(model.example_inputs)
    return any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves)


def build(
    source: api.Source,
    pipeline: str,
    target: str,
    inputs: Sequence[np.ndarray],
    data: list[Batch],
    folder: Path,
) -> Built:
    start = time.perf_counter()
    compiled = api.compile(source, pipeline, target, cache=False)
    spent = time.perf_counter() - start
    path = compiled.save(folder / f"{len(list(folder.iterdir()))}")
    audit = compiled.audit()
    worst = min(compare(source, compiled, data or None).outputs, key=lambda o: o.sqnr_db)
    saved = api.load(path)
    assert isinstance(saved.vmfb, Path) and isinstance(saved.parameters, Path | None)
    return Built(
        pipeline=pipeline,
        target=target,
        job=Job(saved.vmfb, saved.parameters, inputs),
        compile_seconds=spent,
        artifact_bytes=audit.module_bytes + audit.parameter_bytes,
        error={key: getattr(worst, key) for key in ("sqnr_db", "cosine", "cosine_min")},
    )


def run_all(
    name: str, built: list[Built], threads: int, seconds: float, samples: int
) -> list[dict[str, Any]]:
    """One row a program; all of them alive at once and run in turns."""
    console.print(f"{name}: measuring {len(built) + 1} programs on {threads} thread(s)")
    with ExitStack() as stack:

        def start(command: list[str]) -> Session:
            return stack.enter_context(Session(command, threads))

        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jaxq-"))) for _ in built
        ]
        sessions = [
            start(worker_command(folder, b.job, threads))
            for folder, b in zip(folders, built, strict=True)
        ]
        sessions.append(start([sys.executable, __file__, "--jax", name, str(threads)]))
        figures = [f.to_dict() for f in measure(sessions, seconds)]
    rows = [
        {
            "model": name,
            "pipeline": b.pipeline,
            "target": b.target,
            **f,
            "artifact_bytes": b.artifact_bytes,
            "compile_seconds": b.compile_seconds,
            **b.error,
        }
        for b, f in zip(built, figures[:-1], strict=True)
    ]
    rows.append({"model": name, "pipeline": FLOAT, "target": "jax.jit", **figures[-1]})
    reference = figures[-1]["median_ms"]
    for row in rows:
        row["samples_per_second"] = row["calls_per_second"] * samples
        row["speed_over_jax"] = reference / row["median_ms"]
    return rows


def serve_jax(name: str, threads: int) -> None:
    """A worker that runs the float model through `jax.jit` on the first `threads` CPUs."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    import jax

    from jq.ir.oracle.xla import XlaExecutable

    before = peak_rss_bytes()
    source = api.trace(name)
    inputs = inputs_of(source)
    model = source.model
    if model is None:  # a StableHLO file has no JAX function: XLA runs the file's program
        program = XlaExecutable(source.program)
        return serve(lambda: program(*inputs), baseline_rss_bytes=before)
    arguments = model.example_inputs
    if shapes_alone(model):
        arguments = jax.tree.unflatten(jax.tree.structure(arguments), inputs)
    function = jax.jit(model.fn)
    params = jax.device_put(model.params)

    def call() -> Any:
        return jax.device_get(function(params, *arguments))

    return serve(call, baseline_rss_bytes=before)


def print_table(rows: list[dict[str, Any]]) -> None:
    table = Table(title="Latency on this device")
    columns = ["model", "pipeline", "target", "threads", "median ms", "p90 ms", "samples/s"]
    for column in [*columns, "x jax", "peak MiB", "MiB", "compile s", "SQNR dB", "cosine"]:
        table.add_column(column, justify="left" if column in columns[:3] else "right")
    for r in rows:
        known = "artifact_bytes" in r
        table.add_row(
            r["model"],
            r["pipeline"],
            r["target"],
            str(r["threads"]),
            f"{r['median_ms']:.3f}",
            f"{r['p90_ms']:.3f}",
            f"{r['samples_per_second']:.1f}",
            f"{r['speed_over_jax']:.2f}",
            f"{r['peak_rss_bytes'] / 2**20:.0f}",
            f"{r['artifact_bytes'] / 2**20:.2f}" if known else "",
            f"{r['compile_seconds']:.1f}" if known else "",
            f"{r['sqnr_db']:.1f}" if known else "",
            f"{r['cosine']:.5f}" if known else "",
        )
    Console(width=160).print(table)


def plot(rows: list[dict[str, Any]], output: Path) -> None:
    """Median latency per program, one panel for each model and number of threads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys((r["model"], r["threads"]) for r in rows))
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(8, 2.4 * len(panels)), squeeze=False, layout="constrained"
    )
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        own = [r for r in rows if (r["model"], r["threads"]) == panel]
        names = [f"{r['pipeline']} ({r['target']})" for r in own]
        medians = [r["median_ms"] for r in own]
        late = [r["p90_ms"] - r["median_ms"] for r in own]
        colours = ["C7" if r["pipeline"] == FLOAT else "C0" for r in own]
        axis.barh(names, medians, xerr=[[0] * len(own), late], color=colours)
        axis.invert_yaxis()
        axis.set_title(f"{panel[0]}, {panel[1]} thread(s)", fontsize=10)
        axis.set_xlabel("ms per call: median, line to p90")
    for kind in ("svg", "png"):
        figure.savefig(output / f"results.{kind}", dpi=150)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--jax"]:
        serve_jax(sys.argv[2], int(sys.argv[3]))
    else:
        try:
            typer.run(benchmark)
        except JqError as error:
            console.print(f"error: {error}", markup=False)
            sys.exit(error.exit_code)
