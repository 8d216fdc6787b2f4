"""Times of TFLite files as we compile them, by LiteRT's with XNNPACK (its default), on one core.

    scripts/check.py tflite_times wakeword/pymicro_wakeword/models/*.tflite

Each file is compiled for this processor (`--pipeline`, `--target`); calls of both runtimes, inputs
and results bound, alternate in turns. A line a file: the median of a call of each, and their ratio;
at the end the median of all ratios. The exit code is 1 where a ratio is above `--most`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import jq
from checks.tflite_files import drawn
from jq.artifact.load import load_artifact
from jq.base.system.processor import this_processor
from jq.frontends.tflite.operators import read_graph
from jq.iree.runtime import Executable

TURN, ROUNDS = 0.02, 25  # seconds of a runtime in a round, and rounds
Call = Callable[[], Any]


def both(path: Path, pipeline: str, target: str, folder: Path) -> tuple[Call, Call]:
    """One call of ours and one of LiteRT's, of the same inputs."""
    rng, data = np.random.default_rng(0), path.read_bytes()
    graph, specs = read_graph(data, path), jq.trace(str(path)).program.inputs
    numbers = [*map(int, graph.main["inputs"]), *graph.states.values()]
    inputs = [drawn(graph, s, i, rng) for s, i in zip(specs, numbers, strict=True)]
    samples: Any = [tuple(inputs)]
    made = jq.compile(
        str(path), pipeline, target, samples, settings={"recovery": False}, measure=False
    )
    made.save(folder / "artifact")
    found = load_artifact(folder / "artifact")
    ours = Executable.load(found.vmfb, found.parameters, threads=1).bind(*inputs)
    litert = import_module("ai_edge_litert.interpreter")
    peer = litert.Interpreter(model_content=data, num_threads=1)
    peer.allocate_tensors()
    for detail, x in zip(peer.get_input_details(), inputs, strict=False):
        peer.set_tensor(detail["index"], x)
    return ours, peer.invoke


def medians(calls: tuple[Call, ...]) -> list[float]:
    """Microseconds of a call of each, which alternate."""
    counts, times = [], [[] for _ in calls]
    for call in calls:
        start = time.perf_counter()
        for _ in range(5):
            call()
        counts.append(max(1, int(5 * TURN / (time.perf_counter() - start))))
    for _ in range(ROUNDS):
        for call, count, found in zip(calls, counts, times, strict=True):
            call()
            start = time.perf_counter()
            for _ in range(count):
                call()
            found.append(1e6 * (time.perf_counter() - start) / count)
    return [float(np.median(found)) for found in times]


def main(
    files: Annotated[list[Path], typer.Argument(help="TFLite files.")],
    pipeline: Annotated[str, typer.Option(help="Ours.")] = "int8-static-integer-only",
    target: Annotated[str, typer.Option(help="Ours.")] = "litert-reference",
    most: Annotated[float, typer.Option(help="Of ours by LiteRT's.")] = 0.9,
) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    print(f"{this_processor().model}; {pipeline}, {target}")
    ratios = []
    for path in files:
        with tempfile.TemporaryDirectory(prefix="jaxq-times-") as folder:
            try:
                calls = both(path, pipeline, target, Path(folder))
            except jq.UserError as error:
                print(f"{path.name}: refused: {error}", flush=True)
                continue
            ours, theirs = medians(calls)
        ratios.append(ours / theirs)
        print(f"{path.name}: {ours:.1f} µs, {theirs:.1f} µs: {ratios[-1]:.2f}", flush=True)
    print(f"median of {len(ratios)}: {np.median(ratios):.2f}")
    raise typer.Exit(int(max(ratios, default=0) > most))
