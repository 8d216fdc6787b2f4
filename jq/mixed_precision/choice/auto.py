"""Chooses a format for every op within `compile`, where a pipeline leaves that open (`auto`).

1. The model, calibrated once, is planned with each candidate. Weights that have another format than
   in the base pipeline are rounded plainly, the others as they will be. What an op takes with each
   candidate is estimated (`jq.mixed_precision.choice.speed`).
2. One program computes every choice (`jq.mixed_precision.choice.switch`). It measures the error at
   the outputs when one group of ops alone takes an option, and then that of whole choices
   (`jq.mixed_precision.choice.worth`).
3. The best becomes rules with their reasons, as if the user had written them.

What is chosen follows from the model, the data, the pipeline and the target: nothing is timed.
"""

from collections.abc import Sequence
from dataclasses import replace

from jq.base.errors import UserError
from jq.base.progress import Stages
from jq.driver.job import Job
from jq.mixed_precision.choice.candidates import Candidate, make_candidates
from jq.mixed_precision.choice.problem import Problem, find_problem, without
from jq.mixed_precision.choice.reasons import rules_with_reasons, summary
from jq.mixed_precision.choice.worth import Chooser
from jq.passes.pipeline import Pipeline, PipelineFile, flat_settings
from jq.target.rules import Rule
from jq.target.settings import FLOAT


def settle(job: Job, stages: Stages) -> Job:
    """The job with every format decided: where its pipeline leaves that open, by rules.

    Raises:
        UserError: there are no calibration data to measure errors on.
    """
    if not job.pipeline.open:
        return job
    pipeline = job.pipeline
    if not job.data:
        raise UserError(
            f"pipeline {pipeline.name} measures errors on calibration data and there is none",
            hint="give --calibration FILE.npz (calibration=...), or use int8-dynamic",
        )
    found = make_candidates(pipeline.file.candidates, pipeline.settings, pipeline.name)
    problem = find_problem(job, _allowed(found, pipeline), stages, once=True)
    if _formats_asked(pipeline):  # a candidate that an op cannot have would leave it float
        problem = replace(problem, groups=without(problem.groups, FLOAT))
    if not problem.groups:
        return _closed(problem, (), "every op has one format here: there is nothing to choose")
    with stages("choose") as report:
        chooser = Chooser(problem, job.data, report)
        choice = chooser.choose()
        rules = rules_with_reasons(problem, chooser, choice)
        return _closed(problem, rules, summary(chooser, choice))


def _allowed(candidates: Sequence[Candidate], pipeline: Pipeline) -> list[Candidate]:
    """The candidates with the settings that the user gave by name, which hold for all."""
    asked, formats = pipeline.explicit, _formats_asked(pipeline)
    kept = [c for c in candidates if not (formats and "format" in c.rule)]
    return [
        replace(c, overrides=tuple((k, v) for k, v in c.overrides if k not in asked)) for c in kept
    ]


def _formats_asked(pipeline: Pipeline) -> bool:
    return any(key.endswith(".format") for key in pipeline.explicit)


def _closed(problem: Problem, rules: Sequence[Rule], note: str) -> Job:
    """The job with the choice as its pipeline, which is kept in the artifact as one of one's own
    is."""
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
