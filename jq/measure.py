"""How good a compiled model is: its error against the float model, and its latency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jq import npz
from jq.api import compile, plan_job, rewrite_job
from jq.backend.xla import XlaExecutable
from jq.bench import Job as BenchJob
from jq.bench import bench as measure_jobs
from jq.bench import random_inputs
from jq.compare import NOTHING_INSIDE, Comparison, Inside, compare_outputs, samples_of
from jq.compiled import CompiledModel, load
from jq.errors import UserError
from jq.ir.program import signature
from jq.job import (
    AnyModel,
    Calls,
    Data,
    Job,
    Rules,
    Settings,
    Source,
    Stages,
    prepare_job,
    trace,
)
from jq.layers import compare_layers
from jq.metrics import Metric, check
from jq.pipeline import PipelineFile, flat_settings, load_pipeline
from jq.plan import QuantPlan
from jq.progress import Progress, silent
from jq.settings import FLOAT, Rule
from jq.target import Target
from jq.trace.source import load_function
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
    metric: Metric | Sequence[Metric] | None = None,
    labels: Any = None,
    layers: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Error of a compiled model (or of one compiled now) against the float model.

    Args:
        data: batches to compare on; by default the model's evaluation set, else its example.
        metric: a name in `jq.metrics.NAMES`, a function `f(outputs, labels)` (see
            `jq.metrics`), `"file.py:name"` of one, or several of these. By default the
            model's own, or accuracy and agreement where there are labels.
        labels: one a sample; by default those of the model's evaluation set.
        layers: also the error of every contraction's result (`jq.layers`). For an artifact that
            was loaded its plan is made again, with its settings, on the model's calibration data.
    """
    source = trace(model)
    if compiled is None:
        compiled = compile(
            source, pipeline, target, calibration, settings=settings, rules=rules, progress=progress
        )
    given = evaluation_of(source, data, labels, metric)
    check_same_model(source, compiled)
    reference = XlaExecutable(source.program)

    def tracked() -> Iterator[list[np.ndarray]]:
        for i, arrays in enumerate(given.calls):
            if progress:
                progress("compare", i / len(given.calls))
            yield reference(*arrays)

    out_structure = structure_of(source.program.out_tree, len(source.program.outputs))
    return compare_outputs(
        tracked(),
        (compiled.call_flat(arrays) for arrays in given.calls),
        names=[o.name for o in source.program.outputs],
        samples=[samples_of(arrays) for arrays in given.calls],
        labels=given.labels,
        metrics=given.metrics,
        rebuild=lambda leaves: unflatten(out_structure, leaves),
        inside=_inside(source, compiled, calibration, given.calls, progress)
        if layers
        else NOTHING_INSIDE,
    )


def check_same_model(source: Source, compiled: CompiledModel) -> None:
    """Refuses to compare what takes or gives other tensors than the float model."""
    model, made = source.program, compiled
    if (made.inputs, made.outputs) == (model.inputs, model.outputs):
        return
    if made.manifest.settings.get("kv_cache", {}).get("format", FLOAT) != FLOAT:
        raise UserError(
            "the compiled model takes other inputs than the model: its KV cache is quantized",
            hint="compare it compiled with kv_cache.format=float",
        )
    theirs, ours = (signature(m.inputs, m.outputs) for m in (made, model))
    raise UserError(f"it was compiled from another model: {theirs}; the model is {ours}")


@dataclass(frozen=True)
class Evaluation:
    """What a model is judged on, and by which metrics."""

    calls: Calls
    labels: Any
    metrics: tuple[Metric, ...]


def evaluation_of(
    source: Source, data: Data, labels: Any, metric: Metric | Sequence[Metric] | None
) -> Evaluation:
    """What was given, else what the model brings. Its own metric is for its own set."""
    owner = source.model
    own = (owner.evaluation or [owner.example_inputs]) if owner else None
    calls = source.calls(data if data is not None else own)
    if not calls:
        raise UserError("nothing to compare on", hint="give --inputs FILE.npz (data=...)")
    labelled = data is None and owner is not None and owner.evaluation is not None
    if labels is None and labelled and owner:
        labels = owner.labels() if callable(owner.labels) else owner.labels
    if metric is None and labelled and owner:
        metric = owner.metric
    if metric is None:
        metric = () if labels is None else ("accuracy", "top1_agreement")
    several = (metric,) if isinstance(metric, str) or callable(metric) else tuple(metric)
    loaded = (load_function(m) if isinstance(m, str) and ":" in m else m for m in several)
    return Evaluation(calls, labels, tuple(check(m) for m in loaded))


def _inside(
    source: Source,
    compiled: CompiledModel,
    calibration: Data,
    calls: Calls,
    progress: Progress | None,
) -> Inside:
    levels, quant_plan = compiled.levels, compiled.plan
    if not levels or quant_plan is None:
        job, quant_plan = plan_again(source, compiled, calibration)
        levels = rewrite_job(job, quant_plan)
    return compare_layers(levels["float"], levels["qdq"], quant_plan, calls, progress or silent)


def plan_again(
    source: Source, compiled: CompiledModel, calibration: Data = None
) -> tuple[Job, QuantPlan]:
    """How an artifact that was loaded came about: its settings, on the model's calibration data."""
    manifest, own = compiled.manifest, compiled.manifest.own_files
    pipeline = PipelineFile(**own["pipeline"]) if "pipeline" in own else manifest.pipeline
    target = Target(**own["target"]) if "target" in own else manifest.target
    usual = flat_settings(load_pipeline(pipeline).settings.model_dump())
    used = flat_settings(manifest.settings)
    given = {key: value for key, value in used.items() if usual.get(key) != value}
    rules = [Rule(**rule) for rule in manifest.rules]
    job = prepare_job(source, pipeline, target, given, rules, calibration)
    return job, plan_job(job, Stages())


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
    compiled.check_processor()
    assert isinstance(compiled.vmfb, Path)
    given = npz.read_exact(inputs, compiled.inputs) if inputs else random_inputs(compiled.inputs)
    parameters = compiled.parameters if isinstance(compiled.parameters, Path) else None
    return BenchJob(compiled.vmfb, parameters, given)
