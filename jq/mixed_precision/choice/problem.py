"""The problem: the model under every candidate, and what each option costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jq.artifact.jobs import HERE, Workers
from jq.base.errors import UserError
from jq.base.progress import Stages
from jq.driver.job import Job
from jq.driver.stages import calibrate_job
from jq.mixed_precision.choice.candidates import Candidate
from jq.mixed_precision.choice.encodings import stored_weights
from jq.mixed_precision.choice.groups import Group, Option, Stored, make_groups
from jq.mixed_precision.choice.rules import with_rules
from jq.mixed_precision.choice.switch import SwitchProgram
from jq.planning.decisions import QuantPlan
from jq.planning.moments.moments_cache import MomentsCache
from jq.target.rules import Rule, apply_overrides


@dataclass(frozen=True)
class Problem:
    """Attributes:
    job: with the ranges of all activations, when a candidate needs them.
    base: the plan of the pipeline as it is, and what it stores.
    groups: what there is a choice for.
    plans: of the whole model with each candidate.
    """

    job: Job
    base: QuantPlan
    base_stored: Mapping[str, Stored]
    groups: list[Group]
    plans: Mapping[Candidate, QuantPlan]

    def switch(self) -> SwitchProgram:
        """The program that computes every choice."""
        job = self.job
        return SwitchProgram(job.program, job.pipeline, job.context(self.base), self.groups)


def make_problem(
    job: Job, candidates: Sequence[Candidate], stages: Stages, workers: Workers = HERE
) -> Problem:
    """Plans and quantizes the whole model with each candidate.

    Raises:
        UserError: a candidate does not suit the pipeline, or there is nothing to choose.
    """
    found = find_problem(job, candidates, stages, workers)
    if not found.groups:
        names = ", ".join(c.name for c in candidates)
        raise UserError(
            f"the candidates ({names}) do not differ for any op of this model and target",
            hint="`jaxq explain` says why ops are declined; give other --candidates",
        )
    return found


def find_problem(
    job: Job,
    candidates: Sequence[Candidate],
    stages: Stages,
    workers: Workers = HERE,
    *,
    once: bool = False,
) -> Problem:
    """`make_problem`, of which there may be nothing to choose; `once`: recovery of weights runs for
    the pipeline as it is alone, which takes less time."""
    for candidate in candidates:
        _check(job, candidate)
    jobs = {c: with_rules(job, [Rule(pattern="*", override=c.rule)]) for c in candidates}
    if any(j.needs_ranges for j in (job, *jobs.values())):
        job = replace(job, ranges=calibrate_job(job, stages), observed=True)
    plans = {c: j.plan(job.ranges) for c, j in jobs.items()}
    base = job.plan(job.ranges)
    job = replace(job, prepared=replace(job.prepared, moments=MomentsCache()))
    with stages("quantize weights") as report:
        base_stored, *others = stored_weights(
            job, [base, *plans.values()], workers, report, once=once
        )
    groups = make_groups(job.program, plans, dict(zip(plans, others, strict=True)))
    if job.pipeline.settings.integer_only or not job.target.device.float_products:
        groups = without(groups, "float", "weight-only")
    return Problem(job, base, base_stored, groups, plans)


def _check(job: Job, candidate: Candidate) -> None:
    """Refuses a candidate whose settings do not go together with those of the pipeline."""
    apply_overrides(job.pipeline.settings, candidate.rule, where=f"candidate {candidate.name!r}")


def without(groups: Sequence[Group], *decisions: str) -> list[Group]:
    """The groups that leave a choice, without the options that make such a decision about an op
    that another option does not."""
    kept = [replace(g, options=tuple(_others(g, decisions))) for g in groups]
    return [g for g in kept if len(g.options) > 1]


def _others(group: Group, decisions: Sequence[str]) -> Iterator[Option]:
    found = [[p.decision in decisions for p in o.plans] for o in group.options]
    needed = [all(by_option) for by_option in zip(*found, strict=True)]
    for option, made in zip(group.options, found, strict=True):
        if all(not m or n for m, n in zip(made, needed, strict=True)):
            yield option
