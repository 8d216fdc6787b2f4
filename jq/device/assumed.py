"""A model prepared and planned for a device without data: ranges are assumed."""

from dataclasses import dataclass

from jq.base.errors import UserError
from jq.base.progress import Stages
from jq.driver.job import Job, prepare_job, refuse_unmatched
from jq.driver.request import Request
from jq.driver.stages import plan_job
from jq.frontends.source import AnyModel
from jq.ir import Program
from jq.passes.base import run_all
from jq.passes.pipeline import Pipeline, load_pipeline
from jq.passes.pipeline.file import Rules, SettingsLike
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import AssumedRanges
from jq.planning.decisions import QuantPlan
from jq.target.settings import FLOAT
from jq.target.target import Target, load_target

# The first that a device accepts: with the least that has to be known beforehand.
PIPELINES = ("int8-dynamic", "int8-static", "int8-static-integer-only", "int8-weight-only", "float")
# Of every tensor: the zero point is at an end of the codes, where sums are largest.
POSITIVE = AssumedRanges(everywhere=Range(0.0, 1.0))


@dataclass(frozen=True)
class Planned:
    """A model as a device would get it: its plan, and the `integer` level with its markers.

    `refused`: what a pass refused altogether; then `integer` is as far as the passes came."""

    job: Job
    plan: QuantPlan
    integer: Program
    refused: UserError | None = None


def planned(
    model: AnyModel,
    target: str | Target,
    pipeline: str | None,
    settings: SettingsLike,
    rules: Rules,
) -> Planned:
    """The plan and the integer program on assumed ranges, without recovery of accuracy."""
    where = load_target(target)
    chosen = pipeline or first_pipeline(where)
    request = Request(chosen, where, settings, rules, ranges=POSITIVE)
    found = planned_job(prepare_job(model, request, recover=False))
    refuse_unmatched(request, found.plan)
    return found


def planned_job(job: Job) -> Planned:
    """The same of a job that is prepared, with the ranges that it has."""
    plan = plan_job(job, Stages())
    program, cx = job.program.clone(), job.context(plan)
    passes = [*job.pipeline.passes["qdq"], *job.pipeline.passes["integer"]]
    try:
        run_all([p for p in passes if p.name != "verify-integer"], program, cx)
    except UserError as error:
        return Planned(job, plan, program, error)
    return Planned(job, plan, program)


def first_pipeline(target: Target) -> str:
    """The first of our pipelines that a device can carry out."""
    for name in PIPELINES:
        if accepts(target, load_pipeline(name)):
            return name
    hint = "give --pipeline with one of your own"
    raise UserError(f"target {target.name} can carry out none of {', '.join(PIPELINES)}", hint=hint)


def accepts(target: Target, pipeline: Pipeline) -> bool:
    """True if a device has the products, and the kind of ranges, that a pipeline asks for."""
    device, settings = target.device, pipeline.settings
    activations, weights = settings.activations.format, settings.weights.format
    if device.integer_only and not settings.integer_only:
        return False
    if activations == FLOAT:
        return weights == FLOAT or device.float_products
    ranges = device.dynamic if settings.activations.mode == "dynamic" else device.static
    return ranges and f"{activations} x {weights}" in device.products
