"""What there is to choose from: the model under every candidate, and what each option costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jq.choice.candidates import Candidate
from jq.choice.groups import Group, Stored, make_groups
from jq.choice.rules import with_rules
from jq.choice.switch import SwitchProgram
from jq.errors import UserError
from jq.job import Job, Stages
from jq.moments.known import KnownMoments
from jq.passes.base import run_all
from jq.passes.isolated import parts_of
from jq.pipeline import make_plan
from jq.planning import QuantPlan
from jq.settings import Rule, apply_overrides
from jq.stages import calibrate_job


@dataclass(frozen=True)
class Problem:
    """Attributes:
    job: with the ranges of all activations, when a candidate needs them.
    base: the plan of the pipeline as it is, and what it stores.
    groups: what there is a choice for.
    """

    job: Job
    base: QuantPlan
    base_stored: Mapping[str, Stored]
    groups: list[Group]

    def switch(self) -> SwitchProgram:
        """The program that computes every choice."""
        job = self.job
        return SwitchProgram(job.program, job.pipeline, job.context(self.base), self.groups)


def make_problem(job: Job, candidates: Sequence[Candidate], stages: Stages) -> Problem:
    """Plans and quantizes the whole model with each candidate.

    Raises:
        UserError: a candidate does not suit the pipeline, or there is nothing to choose.
    """
    for candidate in candidates:
        _check(job, candidate)
    jobs = {c: with_rules(job, [Rule(pattern="*", override=c.rule)]) for c in candidates}
    if any(j.needs_ranges for j in (job, *jobs.values())):
        job = replace(job, ranges=calibrate_job(job, stages))
    plans = {c: make_plan(j.program, j.pipeline, j.target, job.ranges) for c, j in jobs.items()}
    base = make_plan(job.program, job.pipeline, job.target, job.ranges)
    encoder = _Encoder(job, stages)
    stored = {c: encoder(plan) for c, plan in plans.items()}
    groups = make_groups(job.program, plans, stored)
    if _integer_only(job):
        groups = [g for g in map(_integer_options, groups) if len(g.options) > 1]
    if not groups:
        names = ", ".join(c.name for c in candidates)
        raise UserError(
            f"the candidates ({names}) do not differ for any op of this model and target",
            hint="`jaxq explain` says why ops are declined; give other --candidates",
        )
    return Problem(job, base, encoder(base), groups)


def _check(job: Job, candidate: Candidate) -> None:
    """Refuses a candidate whose settings do not go together with those of the pipeline."""
    apply_overrides(job.pipeline.settings, candidate.rule, where=f"candidate {candidate.name!r}")


class _Encoder:
    """What the pipeline stores of every weight; plans that store the same are run once."""

    def __init__(self, job: Job, stages: Stages) -> None:
        self.job, self.stages, self._moments = job, stages, KnownMoments()
        self._known: list[tuple[QuantPlan, dict[str, Stored]]] = []

    def __call__(self, plan: QuantPlan) -> dict[str, Stored]:
        for known, stored in self._known:
            if known.weights == plan.weights and _integer_ops(known) == _integer_ops(plan):
                return stored
        with self.stages("quantize weights") as report:
            job, program = self.job, self.job.program.clone()
            cx = replace(job.context(plan, report), moments=self._moments)
            run_all(job.pipeline.passes["qdq"], program, cx)
        stored = {}
        for name, enc in plan.weights.items():
            parts = parts_of(job.program.weights[name], name, enc, program.weights)
            for extra in program.weights.keys() & {f"{name}:sum"}:
                parts["sum"] = program.weights[extra]
            stored[name] = Stored(enc, parts)
        self._known.append((plan, stored))
        return stored


def _integer_ops(plan: QuantPlan) -> list[bool]:
    """Which ops are integer: a recovery step may look at it."""
    return [op.decision == "integer" for op in plan.ops]


def _integer_only(job: Job) -> bool:
    return job.pipeline.settings.integer_only


def _integer_options(group: Group) -> Group:
    """Without the options that leave float an op that another option computes in integers."""
    integer = [
        any(o.plans[k].decision == "integer" for o in group.options) for k in range(len(group.ops))
    ]
    kept = tuple(
        o
        for o in group.options
        if all(p.decision == "integer" or not i for p, i in zip(o.plans, integer, strict=True))
    )
    return replace(group, options=kept)
