"""The steps of compiling, one by one: what each finds, without those that follow."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jq.artifact.jobs import Workers, as_workers
from jq.base.errors import UserError
from jq.base.progress import Progress, Stages
from jq.driver.audit.op_table import Explanation, op_table
from jq.driver.job import prepare_job
from jq.driver.request import Request
from jq.driver.stages import calibrate_job, plan_job, rewrite_job
from jq.frontends.source import AnyModel, Data
from jq.ir import Program
from jq.mixed_precision.auto import settle
from jq.passes.pipeline import Levels
from jq.passes.pipeline import rewrite as rewrite_levels
from jq.passes.pipeline.file import Rules, SettingsLike
from jq.planning.calibration.ranges import AssumedRanges, Ranges
from jq.planning.calibration.shards import NO_SHARDS, Shards
from jq.planning.decisions import QuantPlan


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

    The arguments that are not listed are those of `jq.compile`.

    Args:
        data: batches (tuples of inputs), or a `.npz` file of samples; else the model's own.
        settings: see `jq.compile`; `calibration.method` makes a range of the values seen.
        shard: `"2/4"` observes the second of four parts alone; `Ranges.merge` joins the parts.
        workers: who observes, see `jq.artifact.jobs.as_workers`; the ranges are the same.

    Raises:
        UserError: there are no data, or their shapes or types are not those of the model.

    Example:
        ```python
        ranges = jq.calibrate(model, pipeline="int8-static")
        ranges.save("ranges.json")
        compiled = jq.compile(model, "int8-static", ranges=ranges)
        ```"""
    part, where = NO_SHARDS if shard is None else Shards.parse(shard), as_workers(workers)
    request = Request(pipeline, target, settings, None, data, stages=Stages.shown(progress))
    found = calibrate_job(prepare_job(model, request), request.stages, part, where)
    return replace(found, outputs=())


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

    The arguments that are not listed are those of `jq.compile`.

    Args:
        model: see `jq.trace`.

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
        ```"""
    stages = Stages.shown(progress)
    request = Request(
        *(pipeline, target, settings, rules, calibration, ranges),
        *(allow_dynamic, strict_encodings, stages),
    )
    return plan_job(settle(prepare_job(model, request), stages), stages)


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
    calibrate: bool = True,
    progress: Progress | None = None,
) -> Explanation:
    """Shows the plan as `jaxq explain` does: also the kernel of each op, or why it has none, and
    where integers become floats again.

    Recovery passes are left out: they take time, and change values alone. A program that the
    pipeline refuses has its plan all the same, and `refused` says why.

    The arguments that are not listed are those of `jq.compile`.

    Args:
        calibrate: False leaves out the calibration of static ranges, which takes most of the time:
            formats and reasons are those of ranges that are merely assumed.

    Returns:
        A dictionary that prints as a table: `ops`, `dequantized`, `unused_rules`, `refused` if
        compiling would be refused, `doubts`, if the calibration data are of no use, and
        `calibrated`, if there was calibration: calls and seconds.

    Raises:
        UserError: the model, a name or a setting is wrong.

    Example:
        ```python
        explained = jq.explain(model, pipeline="int8-dynamic")
        print(explained["ops"][0]["kernel"])
        ```"""
    stages = Stages.shown(progress)
    if ranges is None and not calibrate:
        ranges = AssumedRanges()
    request = Request(
        *(pipeline, target, settings, rules, calibration, ranges),
        *(allow_dynamic, strict_encodings, stages),
    )
    if request.base.open and not calibrate:
        hint = "leave calibration in, or give another pipeline"
        what = f"pipeline {request.base.name} chooses formats by what it measures"
        raise UserError(what, hint=hint)
    job = settle(prepare_job(model, request, recover=False), stages)
    quant_plan = plan_job(job, stages)
    with stages("rewrite") as report:
        levels, refused = Levels(), {}
        try:
            levels = rewrite_levels(job.program, job.pipeline, job.context(quant_plan, report))
        except UserError as error:
            refused = {"refused": str(error)}
    rows, unused = op_table(quant_plan, levels), list(quant_plan.unused_rules)
    found = {"ops": rows, "dequantized": levels.dequantized, "unused_rules": unused, **refused}
    doubts: dict[str, Any] = {"doubts": list(quant_plan.doubts)} if quant_plan.doubts else {}
    if seconds := stages.seconds.get("calibrate"):
        doubts |= {"calibrated": {"calls": len(job.data or ()), "seconds": round(seconds, 1)}}
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

    The arguments that are not listed are those of `jq.compile`.

    Args:
        model: see `jq.trace`.

    Returns:
        A mapping from `float`, `qdq`, `integer` and `target` to a `Program`: a StableHLO module
        with its weights beside it.

    Raises:
        UserError: as `jq.compile`.

    Example:
        ```python
        levels = jq.rewrite(model, pipeline="int8-dynamic")
        print(levels["integer"].module)  # StableHLO as text
        ```"""
    request = Request(pipeline, target, settings, rules, calibration, ranges, allow_dynamic)
    job = settle(prepare_job(model, request), request.stages)
    return rewrite_job(job, plan_job(job, request.stages))
