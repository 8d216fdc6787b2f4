"""The whole compiler, stage by stage. Start reading here: `compile` is the pipeline in one page.

Model --trace--> Program --calibrate--> Ranges --plan--> QuantPlan
      --rewrite--> Program at each level --build--> CompiledModel --compare--> Comparison"""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jq.artifact.jobs import Workers, as_workers
from jq.base.errors import FarFromFloat, check_known, check_type
from jq.base.progress import Progress, Stages
from jq.driver.comparison.metrics import Metric
from jq.driver.comparison.result import NOTHING_INSIDE, Comparison
from jq.driver.compiled import CompiledModel
from jq.driver.job import at_size, refuse_unmatched
from jq.driver.loading import load
from jq.driver.request import Request
from jq.driver.stages import build, calibrate_job, plan_job
from jq.frontends.source import AnyModel, Data, Sized, Sizes, check_files, trace
from jq.mixed_precision.auto import settle
from jq.mixed_precision.recovery import prepare_best
from jq.passes.order import LEVELS
from jq.passes.pipeline.file import Rules, SettingsLike
from jq.planning.calibration.ranges import Ranges
from jq.reporting.measuring.evaluation import check_metrics, evaluation_of
from jq.reporting.measuring.floor import after_comparing, after_compiling
from jq.reporting.measuring.measure import compare_compiled, layers_of


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
    measure: bool = True,
    minutes: float = 0.0,
    sizes: Sizes | None = None,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compiles a model into a quantized program that IREE runs.

    Args:
        model: see `jq.trace`.
        pipeline: a name, or a path to a TOML file.
        target: a name, or a path to a TOML file.
        calibration: iterable of tuples of inputs, or an `.npz` file of samples, for static
            ranges and the recovery of accuracy; default the model's own.
        ranges: ranges observed earlier, instead of calibration.
        settings: `{"weights.format": "int4"}` or `["weights.format=int4"]`.
        rules: `["PATTERN: key=value, ..."]`, or `{"PATTERN": "key=value, ..."}`; the first that
            matches an op decides. One that matches no op is refused; overruled ones warn.
        emit: levels to keep in the artifact as MLIR.
        cache: take what recovery, calibration and IREE found from an earlier run with the same
            input, when there is one.
        iree_flags: more flags for IREE's compiler (`--name=value`), in place of the target's own
            of the same name. Some start programs or write files: pass none that others wrote.
        allow_dynamic: find ranges at run time where the pipeline asks for calibrated ones and there
            is no calibration data; an error otherwise.
        strict_encodings: refuse a model whose own codes cannot be kept; a warning otherwise.
        measure: run the result on one call beside the float model, for the warning below; a model
            of more than 200 million multiplications is run if it was calibrated.
        minutes: to find a smaller error in (the setting `minutes`): rotations of activations are
            tried, then codes and scales of weights of less than 8 bits are learned. With `cache` a
            run that was stopped goes on where it was, and so does a later one with more minutes.
        sizes: values of symbolic dimensions, as of `jq.trace`. Of several (`{"batch": [1, 8]}`) one
            artifact is made, which has a program for each and chooses by the shapes of its inputs;
            data and ranges are those of the first.
        progress: called with the stage's name and the share done (or None); by default a bar in a
            terminal or a notebook, `jq.base.progress.silent` shows nothing.

    Raises:
        UserError: something that was given is wrong; nothing has been written.
        CompilerError: IREE's compiler failed; the message says where its input is kept.

    Warns:
        jq.base.errors.FarFromFloat: an output is below 15 dB of signal over noise on the first call
            of the calibration data, or on the example inputs; which op makes it; what would help.

    Example:
        ```python
        compiled = jq.compile(model, "int8-static", rules=["head/*: activations.format=int16"])
        outputs = compiled(*model.example_inputs)
        compiled.save("out/", overwrite=True)
        ```"""
    check_type("emit", emit, str, Collection, type(None))
    check_type("measure", measure, bool)
    if sizes is not None and not isinstance(model, Sized):
        model = Sized(model, sizes)
    emit = (emit,) if isinstance(emit, str) else tuple(emit or ())
    for level in emit:
        check_known("level", level, LEVELS)
    stages = Stages.shown(progress)
    request = Request(
        *(pipeline, target, settings, rules, calibration, ranges),
        *(allow_dynamic, strict_encodings, stages, cache, iree_flags, minutes),
    )
    job = settle(prepare_best(model, request), stages)
    if job.source.others and job.needs_ranges:
        job = replace(job, ranges=calibrate_job(job, stages))
    quant_plan = plan_job(job, stages)
    refuse_unmatched(request, quant_plan)
    for rule in request.own_rules:
        if rule.pattern in quant_plan.overruled:
            warnings.warn(
                f"rule {rule.pattern!r} has no effect: rules before it match the same ops",
                stacklevel=2,
            )
    further = [at_size(job, other, job.ranges) for other in job.source.others]
    others = [(other, plan_job(other, stages)) for other in further]
    compiled = build(job, quant_plan, stages, emit, cache=cache, others=others)
    if measure and (said := after_compiling(compiled, job.data)):
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

    The arguments that are not listed are those of `jq.compile`.

    Args:
        compiled: what `jq.compile` or `jq.load` gave, or its folder; None compiles the model.
        data: batches to compare on; by default the model's evaluation set, else its example.
        metric: a name in `jaxq list metrics`, a function `f(outputs, labels)` (see
            `jq.driver.comparison.metrics`), `"file.py:name"` of one, or several of these. By
            default the model's own, or accuracy and agreement where there are labels.
        labels: one a sample; by default those of the model's evaluation set.
        layers: also the error of every contraction's result (`jq.driver.comparison.layers`). Of an
            artifact that was loaded the plan is made again, on the model's calibration data.
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
        ```"""
    check_type("compiled", compiled, CompiledModel, str, Path, type(None))
    check_type("layers", layers, bool)
    where = as_workers(workers)
    asked: dict[str, Any] = {"settings": settings, "rules": rules, "iree_flags": iree_flags}
    asked["allow_dynamic"] = allow_dynamic
    if compiled is None:
        Request(pipeline, target, calibration=calibration, **asked).check()
    check_files(data, calibration)
    source = trace(check_metrics(model, metric, labels))
    given = evaluation_of(source, data, labels, metric)  # mistakes are told before the long part
    if compiled is None:
        compiled = compile(source, pipeline, target, calibration, **asked, progress=progress)
    compiled = load(compiled) if isinstance(compiled, str | Path) else compiled
    inside = layers_of(given, compiled, calibration, progress) if layers else NOTHING_INSIDE
    found = compare_compiled(given, compiled, progress, inside, where)
    if said := after_comparing(source, compiled, found, data, calibration):
        warnings.warn(said, FarFromFloat, stacklevel=2)
    return found
