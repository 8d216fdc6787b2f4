"""The problem: the model under every candidate, and what each option costs."""

import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jq.artifact.jobs import HERE, Workers
from jq.artifact.manifest import Manifest
from jq.base.errors import InternalError, UserError
from jq.base.progress import Stages
from jq.base.system.files import write_text
from jq.driver.job import Job
from jq.driver.stages import calibrate_job
from jq.ir.build import SCOPE, string_attr
from jq.mixed_precision.candidates import Candidate
from jq.mixed_precision.costs import Choice
from jq.mixed_precision.encodings import stored_weights
from jq.mixed_precision.groups import Group, Option, Stored, make_groups
from jq.mixed_precision.switch import SwitchProgram
from jq.passes.pipeline import changed_settings, make_plan
from jq.planning.decisions import QuantPlan
from jq.planning.moments.collect import MomentsCache
from jq.planning.operands import contractions, find_weight, op_name
from jq.target.rules import Rule, apply_overrides
from jq.target.settings import Settings


def rules_of(job: Job, groups: Sequence[Group], choice: Choice) -> tuple[Rule, ...]:
    """One rule for each op that is not as in the base pipeline. Its pattern is the op's name; where
    that is also the scope or the weight of another op, that op gets a rule of its own in front."""
    pairs = zip(groups, choice, strict=True)
    wanted = {op: group.options[i].candidate.rule for group, i in pairs for op in group.ops}
    aliases = _aliases(job)
    hit = {
        name: {other for other, known in aliases.items() if name in known and other != name}
        for name in wanted
    }
    needed = {name for name, overrides in wanted.items() if overrides}
    needed |= {other for name in needed for other in hit[name]}
    decided = [n for n in aliases if any(r.matches(aliases[n]) for r in job.pipeline.rules)]
    needed -= {*decided} - wanted.keys()
    in_order = [name for name in aliases if name in needed]
    order = sorted(in_order, key=lambda name: len(hit.get(name, ())))
    return tuple(Rule(pattern=glob.escape(n), override=wanted.get(n, {})) for n in order)


def _aliases(job: Job) -> dict[str, tuple[str, ...]]:
    """The names by which rules know an op: its name, scope, type and weights."""
    found = {}
    for op, rule in contractions(job.program):
        name, scope = op_name(op), string_attr(op, SCOPE) or ""
        uses = (find_weight(job.program, op.operands[r.index], r) for r in rule.roles(op))
        found[name] = (name, scope, rule.op, *(u.name for u in uses if u is not None))
    return found


def with_rules(job: Job, rules: Sequence[Rule]) -> Job:
    """The same job with further rules after the user's and the pipeline's own."""
    return replace(job, pipeline=replace(job.pipeline, rules=(*job.pipeline.rules, *rules)))


def check_rules(job: Job, groups: Sequence[Group], choice: Choice, rules: Sequence[Rule]) -> None:
    """Raises `InternalError` where the rules lead to another plan than the one that was chosen."""
    plan = make_plan(job.program, with_rules(job, rules).pipeline, job.target, job.ranges)
    found = {op.name: op for op in plan.ops}
    for group, i in zip(groups, choice, strict=True):
        for op in group.options[i].plans:
            if (found[op.name].decision, found[op.name].operands) != (op.decision, op.operands):
                raise InternalError(f"the rules do not lead to {group.options[i].name}", op=op.name)


def check_pipeline_name(path: Path) -> None:
    """Refuses a file that `--pipeline` would take for a name."""
    if path.suffix != ".toml":
        raise UserError(f"{path}: a pipeline is a TOML file", hint="end its name in .toml")


@dataclass(frozen=True)
class MixedPipeline:
    """A pipeline file: another one with settings and rules.

    Attributes:
        base: name or path of the pipeline that it starts from; empty where `settings` say all.
        settings: by dotted keys.
        notes: lines of a comment at its head."""

    base: str
    settings: Mapping[str, Any]
    rules: tuple[Rule, ...]
    notes: tuple[str, ...] = ()

    def save(self, path: Path) -> Path:
        """Writes the file; a base that is a file is named as seen from there."""
        base = self.base
        if Path(base).suffix == ".toml":
            base = os.path.relpath(base, path.absolute().parent)
        write_text(path, self.text(base))
        return path

    def text(self, base: str) -> str:
        lines = [f"# {note}" for note in self.notes]
        lines += [f"base = {_value(base)}"] if base else []
        if self.settings:
            values = (f"{k} = {_value(v)}" for k, v in self.settings.items())
            lines += ["", "[settings]", *values]
        for rule in self.rules:
            pairs = ", ".join(f"{_value(k)} = {_value(v)}" for k, v in rule.override.items())
            lines += ["", "[[rules]]", f"pattern = {_value(rule.pattern)}"]
            lines.append(f"override = {{ {pairs} }}" if pairs else "override = {}")
            lines += [f"reason = {_value(rule.reason)}"] if rule.reason else []
        return "\n".join(lines) + "\n"


def pipeline_of(manifest: Manifest) -> MixedPipeline:
    """The pipeline of an artifact, as a file that can be edited: `auto` with what it chose."""
    changed = changed_settings(manifest.settings, Settings())
    settings = {k: v for k, v in changed.items() if v is not None}
    notes = [f"What {manifest.pipeline} came to", *manifest.notes]
    rules = tuple(Rule(**rule) for rule in manifest.rules)
    return MixedPipeline("", settings, rules, tuple(" ".join(n.split()) for n in notes))


def _value(value: Any) -> str:
    """A TOML value: strings, numbers, booleans and lists of these are as in JSON."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


@dataclass(frozen=True)
class Problem:
    """Attributes:
    job: with the ranges of all activations, when a candidate needs them.
    base: the plan of the pipeline as it is, and what it stores.
    groups: what there is a choice for.
    plans: of the whole model with each candidate."""

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
    job: Job,
    candidates: Sequence[Candidate],
    stages: Stages,
    workers: Workers = HERE,
    *,
    once: bool = False,
) -> Problem:
    """Plans and quantizes the whole model with each candidate; `UserError` where one does not suit
    the pipeline. `once`: recovery of weights runs for the pipeline as it is alone, which takes less
    time."""
    for c in candidates:  # whose settings may not go together with those of the pipeline
        apply_overrides(job.pipeline.settings, c.rule, where=f"candidate {c.name!r}")
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
