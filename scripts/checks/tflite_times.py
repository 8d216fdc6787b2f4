"""Times of TFLite files as we compile them, by LiteRT's with XNNPACK (its default), on one core.

    scripts/check.py tflite_times wakeword/pymicro_wakeword/models/*.tflite

Each file is compiled for this processor (`--pipeline`, `--target`); calls of both runtimes, inputs
and results bound, alternate in turns. Both run on the calling thread, and a time is that of the
processor, which others on the machine hardly change. The target `litert` computes as XNNPACK does.
A line a file: the median of a call of each, the median of the ratios of turns that follow one
another, and how many results are equal; at the end the median of all files. The exit code is 1
where a ratio is above `--most`.
"""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from peers.turns import Call, turns

import jq
from checks.tflite_files import drawn
from jq.artifact.load import load_artifact
from jq.base.system.processor import this_processor
from jq.frontends.tflite.operators import read_graph
from jq.iree.runtime import Executable


def both(path: Path, pipeline: str, target: str, folder: Path) -> tuple[Call, Call, float]:
    """One call of ours and one of LiteRT's, of the same inputs, and the share of equal results."""
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
    executable = Executable.load(found.vmfb, found.parameters, threads=1)
    litert = import_module("ai_edge_litert.interpreter")
    peer = litert.Interpreter(model_content=data, num_threads=1)
    peer.allocate_tensors()
    for detail, x in zip(peer.get_input_details(), inputs, strict=False):
        peer.set_tensor(detail["index"], x)
    peer.invoke()
    wanted = [peer.get_tensor(detail["index"]) for detail in peer.get_output_details()]
    pairs = zip(executable(*inputs), wanted, strict=False)
    same = np.concatenate([(f.reshape(w.shape) == w).reshape(-1) for f, w in pairs])
    equal = np.nan if graph.states else same.mean()  # variables of the peer are not ours
    return executable.bind(*inputs), peer.invoke, float(equal)


def main(
    files: Annotated[list[Path], typer.Argument(help="TFLite files.")],
    pipeline: Annotated[str, typer.Option(help="Ours.")] = "int8-static-integer-only",
    target: Annotated[str, typer.Option(help="Ours.")] = "litert",
    most: Annotated[float, typer.Option(help="Of ours by LiteRT's.")] = 0.9,
) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    print(f"{this_processor().model}; {pipeline}, {target}")
    ratios = []
    for path in files:
        with tempfile.TemporaryDirectory(prefix="jaxq-times-") as folder:
            try:
                *calls, same = both(path, pipeline, target, Path(folder))
            except jq.UserError as error:
                print(f"{path.name}: refused: {error}", flush=True)
                continue
            times = turns(tuple(calls))
        ours, theirs = np.median(times, 0)
        ratios.append(float(np.median(times[:, 0] / times[:, 1])))
        equal = "has state" if np.isnan(same) else f"{100 * same:.1f} % of results equal"
        print(f"{path.name}: {ours:.1f} µs, {theirs:.1f} µs: {ratios[-1]:.2f}; {equal}", flush=True)
    print(f"median of {len(ratios)}: {np.median(ratios):.2f}")
    raise typer.Exit(int(max(ratios, default=0) > most))
