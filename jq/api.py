"""The whole compiler, stage by stage. Start reading here: `compile` is the pipeline in one page.

Model --trace--> Program --calibrate--> Ranges --plan--> QuantPlan
      --rewrite--> Program at each level --build--> CompiledModel --compare--> Comparison
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jq import npz
from jq.backend.artifact import check_output, describe_build
from jq.backend.cache import compile_cached
from jq.backend.compiler import compile_module
from jq.backend.handover import handover
from jq.backend.xla import XlaExecutable
from jq.bench import Job as BenchJob
from jq.bench import bench as measure_jobs
from jq.bench import random_inputs
from jq.calibrate import run as calibration_run
from jq.calibrate.ranges import Ranges
from jq.compare import Comparison, LayerError, compare_outputs, samples_of
from jq.compiled import CompiledModel, load
from jq.errors import UserError
from jq.ir import Program
from jq.layers import compare_layers
from jq.model import Batch, Model, batches
from jq.passes.base import PassContext
from jq.pipeline import LEVELS, Pipeline, flat_settings, load_pipeline, make_plan, prepare
from jq.pipeline import rewrite as rewrite_levels
from jq.plan import QuantPlan
from jq.report import op_table
from jq.settings import Rule, parse_assignments, parse_rule
from jq.target import Target, load_target
from jq.trace.inputs import flat_inputs
from jq.trace.source import load_model
from jq.trace.trace import trace as trace_model
from jq.tree import structure_of, unflatten

Progress = Callable[[str, float | None], None]
Settings = Mapping[str, Any] | Sequence[str] | None
Rules = Sequence[str | Rule] | None
# Batches (tuples of inputs), a function that returns them, or an `.npz` file of samples.
Data = Iterable[Batch] | Callable[[], Iterable[Batch]] | str | Path | None
Calls = list[list[np.ndarray]]  # flat inputs, call by call


@dataclass(frozen=True)
class Source:
    """What is compiled: the float program, and the model it came from when there is one."""

    program: Program
    model: Model | None = None

    @property
    def in_structure(self) -> Mapping[str, Any]:
        return structure_of(self.program.in_tree, len(self.program.inputs))

    def calls(self, data: Data) -> Calls | None:
        """Batches as flat arrays, shapes and types checked; None stays None."""
        if isinstance(data, str | Path):
            return npz.read_samples(Path(data), self.program.inputs)
        given, structure = batches(data), self.in_structure
        if given is None:
            return None
        return [flat_inputs(self.program.inputs, structure, batch) for batch in given]


AnyModel = Source | Model | Program | str | Path


@dataclass
class Stages:
    """Tells the user which stage runs, and keeps how long each took."""

    progress: Progress | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[Callable[[float | None], None]]:
        def report(share: float | None) -> None:
            if self.progress:
                self.progress(name, share)

        report(None)
        start = time.perf_counter()
        yield report
        self.seconds[name] = time.perf_counter() - start


def trace(model: AnyModel, *, sizes: Mapping[str, int] | None = None) -> Source:
    """The float program of a model, however it is given.

    Args:
        model: a `jq.Model`; `"package.module:name"` or `"file.py:name"`; a StableHLO or
            `jax.export` file; a `Program`.
        sizes: values of symbolic dimensions, by name.
    """
    if isinstance(model, Source):
        return model
    if isinstance(model, str | Path):
        model = load_model(str(model))
    owner = model if isinstance(model, Model) else None
    return Source(trace_model(model, sizes=sizes), owner)


@dataclass(frozen=True)
class Job:
    """A traced model with its pipeline and target: what every stage after tracing needs."""

    source: Source
    program: Program  # prepared: the float passes have run
    pipeline: Pipeline
    target: Target
    data: Calls | None  # for calibration

    @property
    def needs_ranges(self) -> bool:
        """Whether calibration is needed; a model may bring all its ranges itself."""
        s = self.pipeline.settings.activations
        if s.mode != "static" or s.format == "float":
            return False
        return bool(make_plan(self.program, self.pipeline, self.target).unranged)


def as_rule(rule: str | Rule) -> Rule:
    return rule if isinstance(rule, Rule) else parse_rule(rule)


def prepare_job(
    model: AnyModel,
    pipeline: str,
    target: str,
    settings: Settings = None,
    rules: Rules = None,
    calibration: Data = None,
) -> Job:
    """Checks every name and setting before any slow work, then traces and cleans up."""
    overrides = (
        settings if isinstance(settings, Mapping) else parse_assignments(list(settings or ()))
    )
    first = tuple(map(as_rule, rules or ()))
    chosen, where = load_pipeline(pipeline, dict(overrides), first), load_target(target)
    source = trace(model)
    own = source.model.calibration if source.model else None
    data = source.calls(calibration if calibration is not None else own)
    program = prepare(source.program, chosen, where, data)
    return Job(source, program, chosen, where, data)


def calibrate(
    model: AnyModel,
    data: Data = None,
    *,
    pipeline: str = "int8-static",
    target: str = "llvm-cpu",
    settings: Settings = None,
    progress: Progress | None = None,
) -> Ranges:
    """The range of every activation over `data` (default: the model's own calibration set)."""
    job = prepare_job(model, pipeline, target, settings, None, data)
    return _calibrate(job, Stages(progress))


def _calibrate(job: Job, stages: Stages) -> Ranges:
    if not job.data:
        raise UserError(
            "static activations need calibration data and there is none",
            hint="give --calibration FILE.npz (calibration=...), or use int8-dynamic",
        )
    total, chosen = len(job.data), job.pipeline.settings.calibration
    with stages("calibrate") as report:
        return calibration_run.calibrate(
            job.program,
            job.data,
            chosen.method,
            lambda done: report(done / total),
            relevant=chosen.relevant,
        )


def plan(
    model: AnyModel,
    *,
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    calibration: Data = None,
    ranges: Ranges | str | Path | None = None,
    settings: Settings = None,
    rules: Rules = None,
    progress: Progress | None = None,
) -> QuantPlan:
    """What would be quantized and how, op by op, with the reason where it would not."""
    job = prepare_job(model, pipeline, target, settings, rules, calibration)
    return _plan(job, ranges, Stages(progress))


def explain(
    model: AnyModel,
    *,
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    calibration: Data = None,
    ranges: Ranges | str | Path | None = None,
    settings: Settings = None,
    rules: Rules = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The plan as `jaxq explain` shows it: also the kernel of each op, or why it has none."""
    stages = Stages(progress)
    job = prepare_job(model, pipeline, target, settings, rules, calibration)
    quant_plan = _plan(job, ranges, stages)
    cx = PassContext(quant_plan, job.pipeline.settings, job.target, job.data)
    with stages("rewrite"):
        levels = rewrite_levels(job.program, job.pipeline, cx)
    rows = op_table(cx, levels["integer"])
    return {"ops": rows, "unused_rules": list(quant_plan.unused_rules)}


def _plan(job: Job, ranges: Ranges | str | Path | None, stages: Stages) -> QuantPlan:
    if isinstance(ranges, str | Path):
        ranges = Ranges.load(Path(ranges))
    if ranges is None and job.needs_ranges:
        ranges = _calibrate(job, stages)
    with stages("plan"):
        return make_plan(job.program, job.pipeline, job.target, ranges)


def rewrite(
    model: AnyModel,
    *,
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    calibration: Data = None,
    ranges: Ranges | str | Path | None = None,
    settings: Settings = None,
    rules: Rules = None,
) -> Mapping[str, Program]:
    """The program at every level: `float`, `qdq`, `integer`, `target`."""
    job = prepare_job(model, pipeline, target, settings, rules, calibration)
    quant_plan = _plan(job, ranges, Stages())
    cx = PassContext(quant_plan, job.pipeline.settings, job.target, job.data)
    levels = rewrite_levels(job.program, job.pipeline, cx)
    return {str(level): found for level, found in levels.items()}


def compile(
    model: AnyModel,
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    calibration: Data = None,
    *,
    ranges: Ranges | str | Path | None = None,
    settings: Settings = None,
    rules: Rules = None,
    emit: Sequence[str] | None = None,
    cache: bool = True,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compiles a model into a quantized program that IREE runs.

    Args:
        model: see `trace`.
        pipeline, target: a name, or a path to a TOML file.
        calibration: iterable of tuples of inputs, or an `.npz` file of samples, for static
            ranges; default the model's own.
        ranges: ranges observed earlier, instead of calibration.
        settings: `{"weights.format": "int4"}` or `["weights.format=int4"]`.
        rules: `"PATTERN: key=value, ..."`; the first that matches an op decides. One
            that matches no op is refused.
        emit: levels to keep in the artifact as MLIR.
        cache: take IREE's result from an earlier run with the same input, when there is one.
        progress: called with the stage's name and the share done (or None).

    Raises:
        UserError: something that was given is wrong; nothing has been written.
        CompilerError: IREE's compiler failed; the message says where its input is kept.
    """
    for level in emit or ():
        if level not in LEVELS:
            raise UserError(f"unknown level {level!r}", hint=f"known: {', '.join(LEVELS)}")
    stages = Stages(progress)
    with stages("trace"):
        job = prepare_job(model, pipeline, target, settings, rules, calibration)
    quant_plan = _plan(job, ranges, stages)
    for rule in map(as_rule, rules or ()):
        if rule.pattern in quant_plan.unused_rules:
            raise UserError(
                f"rule {rule.pattern!r} matches no op", hint="`jaxq explain` lists their names"
            )
    with stages("rewrite"):
        cx = PassContext(quant_plan, job.pipeline.settings, job.target, job.data)
        levels = rewrite_levels(job.program, job.pipeline, cx)
    return build(job, cx, levels, emit or (), stages, cache=cache)


def build(
    job: Job,
    cx: PassContext,
    levels: Mapping[Any, Program],
    emit: Sequence[str],
    stages: Stages,
    *,
    cache: bool = True,
) -> CompiledModel:
    """Hands the `target` level to IREE and puts the artifact together."""
    program = levels["target"]
    with stages("compile"):
        handed = handover(program, inline_limit=job.pipeline.settings.storage.inline_limit)
        run = compile_cached if cache else compile_module
        compiled = run(handed.bytecode, flags=job.target.flags)
    manifest = describe_build(
        program=program,
        source=job.source.program,
        pipeline=job.pipeline.name,
        target=job.target,
        ops=op_table(cx, levels["integer"]),
        unused_rules=cx.plan.unused_rules,
        settings=job.pipeline.settings.model_dump(),
        rules=[rule.model_dump() for rule in job.pipeline.rules],
    )
    return CompiledModel(
        manifest=manifest,
        vmfb=compiled.vmfb,
        parameters=handed.parameters or None,
        dump=compiled.program or "",
        levels=dict(levels),
        emit=tuple(emit),
        seconds=stages.seconds,
    )


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
    return compare_layers(
        levels["float"], levels["qdq"], calls, progress or (lambda stage, share: None)
    )


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
        progress=progress or (lambda stage, share: None),
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


__all__ = [
    "CompiledModel",
    "Source",
    "bench",
    "calibrate",
    "check_output",
    "compare",
    "compile",
    "explain",
    "load",
    "plan",
    "rewrite",
    "trace",
]
