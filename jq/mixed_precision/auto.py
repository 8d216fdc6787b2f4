"""Chooses a format for every op within `compile`, where a pipeline leaves that open (`auto`).

1. The model, calibrated once, is planned with each candidate. Weights that have another format than
   in the base pipeline are rounded plainly, the others as they will be. What an op takes with each
   candidate is estimated (`jq.mixed_precision.speed`).
2. One program computes every choice (`jq.mixed_precision.switch`). It measures the error at
   the outputs when one group of ops alone takes an option, and then that of whole choices
   (`jq.mixed_precision.worth`).
3. The best becomes rules with their reasons, as if the user had written them.

What is chosen follows from the model, the data, the pipeline and the target: nothing is timed."""

import glob
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from jq.base import Stages, UserError
from jq.driver.job import Job
from jq.mixed_precision.candidates import Candidate, make_candidates
from jq.mixed_precision.costs import Choice, decibels
from jq.mixed_precision.problem import Problem, check_rules, make_problem, rules_of, without
from jq.mixed_precision.worth import FLOOR, WorthChooser
from jq.passes.pipeline import PipelineFile, flat_settings
from jq.target import FLOAT, Rule


# A choice in words: rules that say why they are there, and one sentence for all.
def rules_with_reasons(problem: Problem, chooser: WorthChooser, choice: Choice) -> list[Rule]:
    """The rules that make a choice out of the base pipeline."""
    job, groups = problem.job, problem.groups
    rules = rules_of(job, groups, choice)
    check_rules(job, groups, choice, rules)
    why = {
        glob.escape(op): _reason(chooser, g, o)
        for g, o in enumerate(choice)
        for op in groups[g].ops
    }
    return [rule.model_copy(update={"reason": why.get(rule.pattern, "")}) for rule in rules]


def _reason(chooser: WorthChooser, g: int, o: int) -> str:
    group, base = chooser.groups[g], _base(chooser)
    old, whole = group.number(base), chooser.uniform(base)
    name = group.options[o].name
    if old is None or whole is None or old == o:
        return ""
    before, after = (_noise(chooser.error(g, number)) for number in (old, o))
    more = (chooser.cycles.options[g][o] - chooser.cycles.options[g][old]) / chooser.time(whole)
    return f"chosen {name}: noise {after}, not {before}, for {more:+.2%} of the time"


def _base(chooser: WorthChooser) -> Candidate:
    """The candidate that is as the base pipeline, else the first."""
    every = list(chooser.problem.plans)
    return next((c for c in every if not c.overrides), every[0])


def _noise(error: float) -> str:
    return f"{-decibels(error):.1f} dB" if error > 0 else "none"


def summary(chooser: WorthChooser, choice: Choice) -> str:
    """Number of ops of each format, and what that is worth beside the base pipeline."""
    pairs = list(zip(chooser.groups, choice, strict=True))
    counts = Counter(group.options[o].name for group, o in pairs for _ in group.ops)
    named = ", ".join(f"{n} {name}" for name, n in counts.most_common())
    base = _base(chooser)
    old, error = chooser.uniform(base), chooser.whole(choice)
    if old is None:
        return f"{named}; noise {_noise(error)}{_warning(chooser, choice, error)}"
    before, time = chooser.whole(old), chooser.time(choice) / chooser.time(old)
    return (
        f"{named}; estimated noise {_noise(error)} and {time:.2f} of the time of {base.name}"
        f" (noise {_noise(before)}){_warning(chooser, choice, error)}"
    )


def _warning(chooser: WorthChooser, choice: Choice, error: float) -> str:
    """Warns of the op that makes most of an error above the floor, and says what would help."""
    if error <= FLOOR:
        return ""
    worst = max(range(len(choice)), key=lambda g: chooser.error(g, choice[g]))
    op, name = chooser.groups[worst].ops[0], chooser.groups[worst].options[choice[worst]].name
    return (
        f"; warning: that is far from the float model, and {op} in {name} makes most of it:"
        f" allow it more bits, as by the rule '{glob.escape(op)}: float'"
    )


def settle(job: Job, stages: Stages) -> Job:
    """The job with every format decided: where its pipeline leaves that open, by rules; `UserError`
    where there are no calibration data to measure errors on."""
    if not job.pipeline.open:
        return job
    pipeline = job.pipeline
    if not job.data:
        what = f"pipeline {pipeline.name} measures errors on calibration data and there is none"
        hint = "give --calibration FILE.npz (calibration=...), or use int8-dynamic"
        raise UserError(what, hint=hint)
    found = make_candidates(pipeline.file.candidates, pipeline.settings, pipeline.name)
    # The settings that the user gave by name hold for all.
    formats = any(key.endswith(".format") for key in pipeline.explicit)
    allowed = [
        replace(c, overrides=tuple(p for p in c.overrides if p[0] not in pipeline.explicit))
        for c in found
        if not (formats and "format" in c.rule)
    ]
    problem = make_problem(job, allowed, stages, once=True)
    if formats:  # a candidate that an op cannot have would leave it float
        problem = replace(problem, groups=without(problem.groups, FLOAT))
    if not problem.groups:
        return _closed(problem, (), "every op has one format here: there is nothing to choose")
    with stages("choose") as report:
        chooser = WorthChooser(problem, job.data, report)
        choice = chooser.choose()
        rules = rules_with_reasons(problem, chooser, choice)
        return _closed(problem, rules, summary(chooser, choice))


def _closed(problem: Problem, rules: Sequence[Rule], note: str) -> Job:
    """The job with the choice as its pipeline, kept in the artifact as a user's own pipeline is."""
    job, pipeline = problem.job, problem.job.pipeline
    every = (*pipeline.rules, *rules)
    file = PipelineFile(
        name=pipeline.name,
        description=pipeline.description,
        settings=flat_settings(pipeline.settings.model_dump()),
        rules=every,
    )
    job.program.tell(f"{pipeline.name}: {note}")
    closed = replace(pipeline, rules=every, file=file)
    own_files = {**job.own_files, "pipeline": file.model_dump()}
    return replace(job, pipeline=closed, own_files=own_files)
