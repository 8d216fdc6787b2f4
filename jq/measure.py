"""How good a compiled model is: its error against the float model, and its latency."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jq import npz
from jq.api import compile, rewrite
from jq.backend.xla import XlaExecutable
from jq.bench import Job as BenchJob
from jq.bench import bench as measure_jobs
from jq.bench import random_inputs
from jq.compare import Comparison, LayerError, compare_outputs, samples_of
from jq.compiled import CompiledModel, load
from jq.errors import UserError
from jq.job import AnyModel, Calls, Data, Rules, Settings, Source, trace
from jq.layers import compare_layers
from jq.pipeline import flat_settings
from jq.progress import Progress, silent
from jq.settings import Rule
from jq.tree import structure_of, unflatten


def compare(
    model: AnyModel,
    compiled: CompiledModel | None = None,
    data: Data = None,
    *,
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    calibration: Data = None,
    settings: Settings = None,
    rules: Rules = None,
    layers: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Error of a compiled model (or of one compiled now) against the float model.

    Args:
        data: batches to compare on; by default the model's evaluation set, else its example.
        layers: also the error of every contraction's result (`jq.layers`). For an artifact that
            was loaded its plan is made again, with its settings, on the model's calibration data.
    """
    source = trace(model)
    if compiled is None:
        compiled = compile(
            source, pipeline, target, calibration, settings=settings, rules=rules, progress=progress
        )
    owner = source.model
    own = (owner.evaluation or [owner.example_inputs]) if owner else None
    inputs = source.calls(data if data is not None else own)
    if not inputs:
        raise UserError("nothing to compare on", hint="give --inputs FILE.npz (data=...)")
    labelled = data is None and owner is not None and owner.evaluation is not None
    if compiled.inputs != source.program.inputs:
        raise UserError(
            "the compiled model takes other inputs than the model: its KV cache is quantized",
            hint="compare it compiled with kv_cache.format=float",
        )
    reference = XlaExecutable(source.program)

    def tracked() -> Iterator[list[np.ndarray]]:
        for i, arrays in enumerate(inputs):
            if progress:
                progress("compare", i / len(inputs))
            yield reference(*arrays)

    labels = owner.labels if labelled and owner else None
    metric = owner.metric if labelled and owner else None
    out_structure = structure_of(source.program.out_tree, len(source.program.outputs))
    return compare_outputs(
        tracked(),
        (compiled.call_flat(arrays) for arrays in inputs),
        names=[o.name for o in source.program.outputs],
        samples=[samples_of(arrays) for arrays in inputs],
        labels=labels() if callable(labels) else labels,
        metric=metric,
        rebuild=lambda leaves: unflatten(out_structure, leaves),
        layers=_layers(source, compiled, calibration, inputs, progress) if layers else (),
    )


def _layers(
    source: Source,
    compiled: CompiledModel,
    calibration: Data,
    calls: Calls,
    progress: Progress | None,
) -> tuple[LayerError, ...]:
    levels, manifest = compiled.levels, compiled.manifest
    if not levels:
        levels = rewrite(
            source,
            pipeline=manifest.pipeline,
            target=manifest.target,
            calibration=calibration,
            settings=flat_settings(manifest.settings),
            rules=[Rule(**rule) for rule in manifest.rules],
        )
    return compare_layers(levels["float"], levels["qdq"], calls, progress or silent)


def bench(
    artifact: str | Path,
    *,
    against: str | Path | None = None,
    inputs: Path | None = None,
    threads: int | None = None,
    seconds: float = 5.0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Latency of an artifact in a process of its own, as the document of `jaxq bench`.

    Args:
        against: a second artifact, run in turns with the first; `ratio` is its median over ours.
        inputs: a `.npz` file; random values of the right types by default.
        threads: 1 by default.
        seconds: measuring time in all.
    """
    paths = [artifact] if against is None else [artifact, against]
    jobs = [_bench_job(path, inputs) for path in paths]
    figures = measure_jobs(
        jobs,
        threads=threads or 1,
        seconds=seconds / len(jobs),
        progress=progress or silent,
    )
    document = figures[0].to_dict()
    if against is not None:
        document["against"] = figures[1].to_dict()
        document["ratio"] = figures[1].median_ms / figures[0].median_ms
    return document


def _bench_job(path: str | Path, inputs: Path | None) -> BenchJob:
    compiled = load(path)
    assert isinstance(compiled.vmfb, Path)
    given = npz.read_exact(inputs, compiled.inputs) if inputs else random_inputs(compiled.inputs)
    parameters = compiled.parameters if isinstance(compiled.parameters, Path) else None
    return BenchJob(compiled.vmfb, parameters, given)
