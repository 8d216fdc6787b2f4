"""What there is to choose from: the model under every candidate, and what each option costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jq.choice.candidates import Candidate
from jq.choice.groups import Group, Stored, make_groups
from jq.choice.rules import with_rules
from jq.choice.switch import SwitchProgram
from jq.errors import UserError
from jq.formats import Encoding
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


def make_problem(job: Job, candidates: Sequence[Candidate], stages: Stages) -> Problem:
    """Plans and quantizes the whole model with each candidate.

    Raises:
        UserError: a candidate does not suit the pipeline, or there is nothing to choose.
    """
    found = find_problem(job, candidates, stages)
    if not found.groups:
        names = ", ".join(c.name for c in candidates)
        raise UserError(
            f"the candidates ({names}) do not differ for any op of this model and target",
            hint="`jaxq explain` says why ops are declined; give other --candidates",
        )
    return found


def find_problem(
    job: Job, candidates: Sequence[Candidate], stages: Stages, *, once: bool = False
) -> Problem:
    """`make_problem`, of which there may be nothing to choose; `once`: recovery of weights runs for
    the pipeline as it is alone, which takes less time."""
    for candidate in candidates:
        _check(job, candidate)
    jobs = {c: with_rules(job, [Rule(pattern="*", override=c.rule)]) for c in candidates}
    if job.ranges is None and any(j.needs_ranges for j in (job, *jobs.values())):
        job = replace(job, ranges=calibrate_job(job, stages), observed=True)
    plans = {c: make_plan(j.program, j.pipeline, j.target, job.ranges) for c, j in jobs.items()}
    base = make_plan(job.program, job.pipeline, job.target, job.ranges)
    encoder = _Encoder(job, stages, once)
    base_stored = encoder(base)
    stored = {c: encoder(plan) for c, plan in plans.items()}
    groups = make_groups(job.program, plans, stored)
    if _integer_only(job) or not job.target.device.float_products:
        groups = [g for g in map(_integer_options, groups) if len(g.options) > 1]
    return Problem(job, base, base_stored, groups, plans)


def _check(job: Job, candidate: Candidate) -> None:
    """Refuses a candidate whose settings do not go together with those of the pipeline."""
    apply_overrides(job.pipeline.settings, candidate.rule, where=f"candidate {candidate.name!r}")


class _Encoder:
    """What the pipeline stores of every weight; plans that store the same are run once.

    `once`: recovery runs for the first plan alone; weights that others encode otherwise are rounded
    plainly.
    """

    def __init__(self, job: Job, stages: Stages, once: bool = False) -> None:
        self.job, self.stages, self.once, self._moments = job, stages, once, KnownMoments()
        self._known: list[tuple[QuantPlan, dict[str, Stored]]] = []

    def __call__(self, plan: QuantPlan) -> dict[str, Stored]:
        for known, stored in self._known:
            if known.weights == plan.weights and _integer_ops(known) == _integer_ops(plan):
                return stored
        if self.once and self._known:
            first, wanted = self._known[0][1], plan.weights
            same = {n: first[n] for n in wanted if n in first and first[n].encoding == wanted[n]}
            return same | self._stored({n: e for n, e in wanted.items() if n not in same}, {})
        with self.stages("quantize weights") as report:
            job, program = self.job, self.job.program.clone()
            cx = replace(job.context(plan, report), moments=self._moments)
            run_all(job.pipeline.passes["qdq"], program, cx)
        stored = self._stored(plan.weights, program.weights)
        self._known.append((plan, stored))
        return stored

    def _stored(
        self, weights: Mapping[str, Encoding], chosen: Mapping[str, np.ndarray]
    ) -> dict[str, Stored]:
        stored = {}
        for name, enc in weights.items():
            parts = parts_of(self.job.program.weights[name], name, enc, chosen)
            for extra in chosen.keys() & {f"{name}:sum"}:
                parts["sum"] = chosen[extra]
            stored[name] = Stored(enc, parts)
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
