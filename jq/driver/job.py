"""The job of compiling a traced model for a target: what every stage after tracing needs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.keys import program_digest
from jq.artifact.store import Cache
from jq.base import LOG, Stages, UserError
from jq.base.system.folders import data_names
from jq.driver.request import Request
from jq.frontends.source import AnyModel, Calls, LazyCalls, Source, trace
from jq.ir import Program
from jq.passes.base import PassContext, Report, unheard
from jq.passes.pipeline import Pipeline, for_target, make_plan, prepare, without_ranges
from jq.planning.calibration.ranges import AssumedRanges, Ranges
from jq.planning.decisions import QuantPlan
from jq.planning.moments.collect import MomentsCache
from jq.target.target import Target, is_ours

ONE_RECOVERY = "weights are the same at all sizes: what recovers accuracy with data was left out"
RANGES_AT_RUN_TIME = "there is no calibration data: ranges of activations are found at run time"
NO_DATA = "static activations need calibration data and there is none"
GIVE_DATA = "give --calibration FILE.npz (calibration=...; `jaxq calibrate` has --data)"
DATA_HINT = (
    f"{GIVE_DATA}, use int8-dynamic,"
    " or let ranges be found at run time with --allow-dynamic (allow_dynamic=True)"
)


@dataclass(frozen=True)
class Job:
    """A traced model with its pipeline and target.

    Attributes:
        program: prepared: the float passes have run.
        data: for calibration.
        own_files: pipeline and target, where they are not ours.
        prepared: the context that the float passes ran in.
        ranges: given by the user, instead of calibration; or `observed` for this very job."""

    source: Source
    program: Program
    pipeline: Pipeline
    target: Target
    data: Calls | None
    own_files: Mapping[str, Mapping[str, Any]]
    prepared: PassContext
    ranges: Ranges | None = None
    observed: bool = False

    @cached_property
    def first_plan(self) -> QuantPlan:
        """The plan by the ranges that the model brings itself."""
        return make_plan(self.program, self.pipeline, self.target)

    @property
    def needs_ranges(self) -> bool:
        """True if calibration is needed; a model may bring all its ranges itself."""
        return self.ranges is None and bool(self.first_plan.unranged)

    def plan(self, ranges: Ranges | None) -> QuantPlan:
        """The plan by ranges; each is made once where there are none."""
        if ranges is None:
            return self.first_plan
        return make_plan(self.program, self.pipeline, self.target, ranges)

    def context(self, plan: QuantPlan, report: Report = unheard) -> PassContext:
        """The context of the passes after planning."""
        cx = replace(self.prepared, plan=plan, settings=self.pipeline.settings, report=report)
        if cx.settings.minutes and cx.moments is None:  # GPTAQ asks what GPTQ did
            cx = replace(cx, moments=MomentsCache())
        return replace(cx, target=self.target, data=self.data)


def prepare_job(
    model: AnyModel, request: Request, *, recover: bool = True, several: bool = False
) -> Job:
    """Checks every name and setting before any slow work, then traces and cleans up.

    Args:
        recover: False leaves out what takes time and changes values alone (see `PassContext`).
        several: a source may have several sizes: the job is that of the first (`at_size`).

    Raises:
        UserError: something that was given is wrong, or there is no calibration data where ranges
            are asked for and may not be found at run time."""
    request.check()
    stages, where, known = request.stages, request.where, request.known
    chosen, calibration = for_target(request.base, where), request.calibration
    if chosen.open and not where.device.static:
        chosen = without_ranges(chosen, where) or chosen
    with stages("trace"):
        source = trace(model)
        if source.others and not several:
            what = "it is traced at several sizes"
            raise UserError(what, hint="give one: only compile takes more")
        if known is not None:
            check_ranges(known, source.program, request.ranges)
        its = source.model.calibration if source.model else None
        given = calibration is not None
        data = source.calls(calibration) if given else LazyCalls(partial(source.calls, its))
    smoothing = known.smoothing if known else None
    # What an open pipeline chooses depends on recovery, also where the plan alone is asked for.
    recovery_asked, recover = recover, (recover or chosen.open) and not source.others
    with stages("prepare") as report:
        results = Cache("recovery", data) if request.cache else None
        own: dict[str, Any] = {"recover": recover, "report": report, "results": results}
        cx = _context(chosen, where, data, smoothing, **own)
        program = prepare(source.program, chosen, where, cx=cx)
        fixed = known is None and not chosen.open
        other = without_ranges(chosen, where) if fixed else None
        if other and not data and make_plan(program, chosen, where).unranged:
            if not request.allow_dynamic:
                raise UserError(NO_DATA, hint=DATA_HINT)
            LOG.warning("%s: %s", chosen.name, RANGES_AT_RUN_TIME)
            chosen, start = other, source.program.clone()
            start.notes = program.notes
            start.tell(RANGES_AT_RUN_TIME)
            cx = _context(chosen, where, data, smoothing, **own)
            program = prepare(start, chosen, where, cx=cx)
    if source.others and recovery_asked and chosen.settings.recovery and data:
        program.tell(ONE_RECOVERY)
    return Job(source, program, chosen, where, data, _own_files(request, chosen), cx, known)


def check_matched(source: Source, request: Request) -> None:
    """Refuses rules that match no op, before what takes long: recovery, and calibration."""
    if request.own_rules and not request.base.open:
        quick = replace(request, ranges=AssumedRanges(), stages=Stages())
        job = prepare_job(source, quick, recover=False, several=True)
        refuse_unmatched(request, job.plan(job.ranges))


def refuse_unmatched(request: Request, plan: QuantPlan) -> None:
    """Refuses a rule of the user's that decides for no op, unless rules before it do."""
    for rule in request.own_rules:
        if rule.pattern in plan.unused_rules and rule.pattern not in plan.overruled:
            hint = "`jaxq explain` lists the names"
            raise UserError(f"rule {rule.pattern!r} matches no op", hint=hint)


def _own_files(request: Request, chosen: Pipeline) -> dict[str, Mapping[str, Any]]:
    """The contents of files of the user's own, for the manifest."""
    found: dict[str, Mapping[str, Any]] = {}
    if request.pipeline not in data_names("pipelines"):
        found["pipeline"] = chosen.file.model_dump()
    if not (isinstance(request.target, str) and is_ours(request.target)):
        found["target"] = request.own_target.model_dump()
    return found


def at_size(job: Job, other: Source, ranges: Ranges | None) -> Job:
    """The job at another size, with the ranges of the first: ops have the same names."""
    known = ranges.smoothing if ranges else None
    cx = _context(job.pipeline, job.target, (), known, recover=False)
    program = prepare(other.program, job.pipeline, job.target, cx=cx)
    return replace(job, source=other, program=program, data=(), prepared=cx, ranges=ranges)


def check_ranges(ranges: Ranges, program: Program, given: Ranges | str | Path | None) -> None:
    """Refuses ranges that make no sense, are of another model or of a part of the data, or come
    from a file that does not say of which."""
    ranges.check()
    if missing := ranges.shards.missing:
        what = f"the ranges lack shard {missing[0]}/{ranges.shards.count} of the calibration data"
        raise UserError(what, hint="`jaxq calibrate --merge` puts all shards together")
    file = f"{given}: " if isinstance(given, str | Path) else ""
    if ranges.model != program_digest(program) and (ranges.model or file):
        what = f"{file}the ranges are of another model, or of other weights, shapes or versions"
        raise UserError(what, hint="make them with `jaxq calibrate` on this model")


def _context(
    pipeline: Pipeline,
    target: Target,
    data: Calls | None,
    smoothing: Mapping[str, np.ndarray] | None,
    **more: Any,
) -> PassContext:
    """The context of the float passes."""
    own = {"rules": pipeline.rules, "explicit": pipeline.explicit, **more}
    return PassContext(QuantPlan((), {}), pipeline.settings, target, data, smoothing, **own)
