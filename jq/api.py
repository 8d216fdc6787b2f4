"""The whole compiler, stage by stage. Start reading here: `compile` is the pipeline in one page.

Model --trace--> Program --calibrate--> Ranges --plan--> QuantPlan
      --rewrite--> Program at each level --build--> CompiledModel --compare--> Comparison
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jq.artifact.jobs import Workers, as_workers
from jq.base.errors import FarFromFloat, UserError, known
from jq.base.progress import Progress, Stages
from jq.base.progress import default as default_progress
from jq.driver.audit.op_table import Explanation, op_table
from jq.driver.comparison.metrics import Metric
from jq.driver.comparison.result import Comparison
from jq.driver.compiled import CompiledModel, load
from jq.driver.job import at_size, prepare_job
from jq.driver.stages import build, calibrate_job, plan_job, rewrite_job
from jq.frontends.source import AnyModel, Data, Source, check_files, trace
from jq.ir import Program
from jq.mixed_precision.choice.auto import settle
from jq.passes.order import LEVELS
from jq.passes.pipeline import Levels
from jq.passes.pipeline import rewrite as rewrite_levels
from jq.passes.pipeline.overrides import Rules, SettingsLike, as_rules, strict
from jq.planning.calibration.ranges import Ranges
from jq.planning.calibration.shards import NO_SHARDS, Shards
from jq.planning.decisions import QuantPlan
from jq.reporting.measuring.evaluation import check_metrics
from jq.reporting.measuring.floor import after_calibration, after_comparing
from jq.reporting.measuring.measure import compare_artifact


def calibrate(
    model: AnyModel,
    data: Data = None,
    *,
    pipeline: str = "int8-static",
    target: str = "llvm-cpu",
    settings: SettingsLike = None,
    shard: str | None = None,
    workers: Workers | int | str = 1,
    progress: Progress | None = None,
) -> Ranges:
    """Observes the activations of the float model on data, and gives the range of each.

    Args:
        model: see `jq.trace`.
        data: batches (tuples of inputs), or a `.npz` file of samples; by default those of the
            model.
        pipeline: as in `jq.compile`.
        target: as in `jq.compile`.
        settings: as in `jq.compile`; `calibration.method` says how a range follows from the values
            that were seen.
        shard: `"2/4"` observes the second of four parts of the data alone; `Ranges.merge` puts the
            parts together.
        workers: who observes, see `jq.artifact.jobs.as_workers`; the ranges are the same.

    Raises:
        UserError: there are no data, or their shapes or types are not those of the model.

    Example:
        ```python
        ranges = jq.calibrate(model, pipeline="int8-static")
        ranges.save("ranges.json")
        compiled = jq.compile(model, "int8-static", ranges=ranges)
        ```
    """
    part, where = NO_SHARDS if shard is None else Shards.parse(shard), as_workers(workers)
    stages = Stages(progress or default_progress())
    job = prepare_job(model, pipeline, target, settings, None, data, stages=stages)
    return replace(calibrate_job(job, stages, part, where), outputs=())


def plan(
    model: AnyModel,
    *,
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    calibration: Data = None,
    ranges: Ranges | str | Path | None = None,
    settings: SettingsLike = None,
    rules: Rules = None,
    allow_dynamic: bool = False,
    strict_encodings: bool = False,
    progress: Progress | None = None,
) -> QuantPlan:
    """Decides what is quantized and how, without computing anything else.

    The arguments are those of `jq.compile`.

    Returns:
        A `QuantPlan`, which prints as a table: a row for each op with its decision, the formats
        of weights and activations, and the reason if it stays float. `plan["head/kernel"]` is one
        row.

    Raises:
        UserError: the model, a name or a setting is wrong, or static ranges are needed and there
            are neither data nor ranges.

    Example:
        ```python
        plan = jq.plan(model, pipeline="int8-dynamic", rules=["head/*: float"])
        print(plan["head/kernel"].reason)
        ```
    """
    stages = Stages(progress or default_progress())
    job = prepare_job(
        model,
        pipeline,
        target,
        strict(settings, strict_encodings),
        rules,
        calibration,
        ranges,
        stages=stages,
        allow_dynamic=allow_dynamic,
    )
    return plan_job(settle(job, stages), stages)


def explain(
    model: AnyModel,
    *,
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    calibration: Data = None,
    ranges: Ranges | str | Path | None = None,
    settings: SettingsLike = None,
    rules: Rules = None,
    allow_dynamic: bool = False,
    strict_encodings: bool = False,
    progress: Progress | None = None,
) -> Explanation:
    """Shows the plan as `jaxq explain` does: also the kernel of each op, or why it has none, and
    where integers become floats again.

    The arguments are those of `jq.compile`. Recovery passes are left out: they take time, and
    change values alone. A program that the pipeline refuses has its plan all the same, and
    `refused` says why.

    Returns:
        A dictionary that prints as a table: `ops`, `dequantized`, `unused_rules`, `refused` if
        compiling would be refused, and `doubts`, if the calibration data are of no use.

    Example:
        ```python
        explained = jq.explain(model, pipeline="int8-dynamic")
        print(explained["ops"][0]["kernel"])
        ```
    """
    stages = Stages(progress or default_progress())
    job = prepare_job(
        model,
        pipeline,
        target,
        strict(settings, strict_encodings),
        rules,
        calibration,
        ranges,
        stages=stages,
        recover=False,
        allow_dynamic=allow_dynamic,
    )
    job = settle(job, stages)
    quant_plan = plan_job(job, stages)
    with stages("rewrite") as report:
        levels, refused = Levels(), {}
        try:
            levels = rewrite_levels(job.program, job.pipeline, job.context(quant_plan, report))
        except UserError as error:
            refused = {"refused": str(error)}
    rows, unused = op_table(quant_plan, levels), list(quant_plan.unused_rules)
    found = {"ops": rows, "dequantized": levels.dequantized, "unused_rules": unused, **refused}
    doubts = {"doubts": list(quant_plan.doubts)} if quant_plan.doubts else {}
    return Explanation(found | doubts)


def rewrite(
    model: AnyModel,
    *,
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    calibration: Data = None,
    ranges: Ranges | str | Path | None = None,
    settings: SettingsLike = None,
    rules: Rules = None,
    allow_dynamic: bool = False,
) -> Mapping[str, Program]:
    """Gives the program at every level, without compiling it.

    The arguments are those of `jq.compile`.

    Returns:
        A mapping from `float`, `qdq`, `integer` and `target` to a `Program`: a StableHLO module
        with its weights beside it.

    Raises:
        UserError: as `jq.compile`.

    Example:
        ```python
        levels = jq.rewrite(model, pipeline="int8-dynamic")
        print(levels["integer"].module)  # StableHLO as text
        ```
    """
    job = prepare_job(
        model,
        pipeline,
        target,
        settings,
        rules,
        calibration,
        ranges,
        allow_dynamic=allow_dynamic,
    )
    job = settle(job, Stages())
    return rewrite_job(job, plan_job(job, Stages()))


def compile(
    model: AnyModel,
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    calibration: Data = None,
    *,
    ranges: Ranges | str | Path | None = None,
    settings: SettingsLike = None,
    rules: Rules = None,
    emit: Sequence[str] | str | None = None,
    cache: bool = True,
    iree_flags: Sequence[str] = (),
    allow_dynamic: bool = False,
    strict_encodings: bool = False,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compiles a model into a quantized program that IREE runs.

    Args:
        model: see `trace`. Traced at several sizes (`jq.trace(model, sizes={"batch": [1, 8]})`) it
            becomes one artifact, which has a program for each and chooses by the shapes of its
            inputs; data and ranges are those of the first.
        pipeline: a name, or a path to a TOML file.
        target: a name, or a path to a TOML file.
        calibration: iterable of tuples of inputs, or an `.npz` file of samples, for static
            ranges and the recovery of accuracy; default the model's own.
        ranges: ranges observed earlier, instead of calibration.
        settings: `{"weights.format": "int4"}` or `["weights.format=int4"]`.
        rules: `["PATTERN: key=value, ..."]`, or `{"PATTERN": "key=value, ..."}`; the first that
            matches an op decides. One that matches no op is refused; one that others overrule is
            warned of.
        emit: levels to keep in the artifact as MLIR.
        cache: take what recovery, calibration and IREE found from an earlier run with the same
            input, when there is one.
        iree_flags: more flags for IREE's compiler (`--name=value`), in place of the target's own
            of the same name. Some start programs or write files: pass none from a file that you
            did not write.
        allow_dynamic: find ranges at run time where the pipeline asks for calibrated ones and there
            is no calibration data; an error otherwise.
        strict_encodings: refuse a model whose own codes cannot be kept; a warning otherwise.
        progress: called with the stage's name and the share done (or None); by default a bar in a
            terminal or a notebook, `jq.base.progress.silent` shows nothing.

    Raises:
        UserError: something that was given is wrong; nothing has been written.
        CompilerError: IREE's compiler failed; the message says where its input is kept.

    Warns:
        jq.base.errors.FarFromFloat: after calibration an output is below 15 dB of signal over noise
            on the first call of the data; which op makes it, and what would help.

    Example:
        ```python
        compiled = jq.compile(model, "int8-static", rules=["head/*: activations.format=int16"])
        outputs = compiled(*model.example_inputs)
        compiled.save("out/", overwrite=True)
        ```
    """
    emit = (emit,) if isinstance(emit, str) else tuple(emit or ())
    for level in emit:
        if level not in LEVELS:
            raise UserError(f"unknown level {level!r}", hint=known(level, LEVELS))
    stages = Stages(progress or default_progress())
    job = prepare_job(
        model,
        pipeline,
        target,
        strict(settings, strict_encodings),
        rules,
        calibration,
        ranges,
        stages=stages,
        cache=cache,
        iree_flags=iree_flags,
        allow_dynamic=allow_dynamic,
        several=True,
    )
    job = settle(job, stages)
    if job.source.others and job.ranges is None and job.needs_ranges:
        job = replace(job, ranges=calibrate_job(job, stages))
    quant_plan = plan_job(job, stages)
    for rule in as_rules(rules):
        if rule.pattern in quant_plan.overruled:
            warnings.warn(
                f"rule {rule.pattern!r} has no effect: rules before it match the same ops",
                stacklevel=2,
            )
        elif rule.pattern in quant_plan.unused_rules:
            raise UserError(
                f"rule {rule.pattern!r} matches no op", hint="`jaxq explain` lists their names"
            )
    sizes = [at_size(job, other, job.ranges) for other in job.source.others]
    others = [(other, plan_job(other, stages)) for other in sizes]
    compiled = build(job, quant_plan, stages, emit, cache=cache, others=others)
    if said := after_calibration(compiled, job.data):
        warnings.warn(said, FarFromFloat, stacklevel=2)
    return compiled


def compare(
    model: AnyModel,
    compiled: CompiledModel | str | Path | None = None,
    data: Data = None,
    *,
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    calibration: Data = None,
    settings: SettingsLike = None,
    rules: Rules = None,
    metric: Metric | Sequence[Metric] | None = None,
    labels: Any = None,
    layers: bool = False,
    iree_flags: Sequence[str] = (),
    allow_dynamic: bool = False,
    workers: Workers | int | str = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Error of a compiled model (or of one compiled now) against the float model.

    Args:
        compiled: what `jq.compile` or `jq.load` gave, or the folder of an artifact; by default the
            model is compiled.
        data: batches to compare on; by default the model's evaluation set, else its example.
        metric: a name in `jaxq list metrics`, a function `f(outputs, labels)` (see
            `jq.driver.comparison.metrics`), `"file.py:name"` of one, or several of these. By
            default the model's own, or accuracy and agreement where there are labels.
        labels: one a sample; by default those of the model's evaluation set.
        layers: also the error of every contraction's result (`jq.driver.comparison.layers`). For an
            artifact that was loaded its plan is made again, with its settings, on the model's
            calibration data.
        iree_flags: see `jq.compile`.
        allow_dynamic: see `jq.compile`.
        workers: who runs both models, see `jq.artifact.jobs.as_workers`; the figures are the same.

    Returns:
        A `Comparison`, which prints as tables. `outputs` has for each output `sqnr_db` (signal over
        noise, in dB), `cosine` (its mean over the samples), `cosine_min` (of the worst sample) and
        `max_abs_error`; `layers` and `metrics` are there when they were asked for.

    Raises:
        UserError: the artifact is of another model, or a metric is unknown or needs labels.

    Warns:
        jq.base.errors.FarFromFloat: an output is below 15 dB; see `jq.compile`.

    Example:
        ```python
        comparison = jq.compare(model, compiled, layers=True)
        print(comparison.outputs[0].sqnr_db, comparison.layers[0].name)
        ```
    """
    where = as_workers(workers)
    check_metrics(model, metric, labels)
    check_files(data, calibration)
    source = trace(model)
    if compiled is None:
        compiled = compile(
            source,
            pipeline,
            target,
            calibration,
            settings=settings,
            rules=rules,
            iree_flags=iree_flags,
            allow_dynamic=allow_dynamic,
            progress=progress,
        )
    compiled = load(compiled) if isinstance(compiled, str | Path) else compiled
    found = compare_artifact(
        source,
        compiled,
        data,
        calibration=calibration,
        metric=metric,
        labels=labels,
        layers=layers,
        workers=where,
        progress=progress,
    )
    if said := after_comparing(source, compiled, found, data, calibration):
        warnings.warn(said, FarFromFloat, stacklevel=2)
    return found


__all__ = [
    "CompiledModel",
    "Source",
    "calibrate",
    "compare",
    "compile",
    "explain",
    "load",
    "plan",
    "rewrite",
    "trace",
]
