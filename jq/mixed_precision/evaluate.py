"""The error of a choice: of one group alone on a few samples, and of all on the evaluation set."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from jq.artifact.jobs import HERE, Workers, run_jobs
from jq.artifact.keys import program_digest
from jq.artifact.store import Cache
from jq.base import LOG, Progress, UserError
from jq.base.system.files import check_file, read_text, write_text
from jq.driver.comparison.metrics import Figures
from jq.driver.comparison.outputs import Outputs
from jq.driver.comparison.result import Comparison
from jq.driver.job import Job
from jq.mixed_precision.budget import figures
from jq.mixed_precision.costs import Choice
from jq.mixed_precision.switch import Alone, Choices, Together
from jq.reporting.measuring.evaluation import Evaluation

# The measurements of a search so far, in a file: an interrupted search goes on from there.


class State:
    """Numbers by name, in a file of JSON that is written whole or not at all.

    Args:
        path: the file. One that is damaged, or has another key, is as good as none.
        key: stands for all that a measurement depends on, the code of this package among it."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.values = self._read()
        self._kept = True
        if path.is_file() and not self.values:
            LOG.warning("%s: measured with other code, data or settings: measured anew", path)

    def _read(self) -> dict[str, float]:
        try:
            found = json.loads(read_text(self.path))
            values = found["values"] if found["key"] == self.key else {}
            return {str(name): float(value) for name, value in values.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def put(self, name: str, value: float) -> None:
        """Keeps a value; if the file cannot be written, the search goes on and says so once."""
        self.values[name] = value
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.path, json.dumps({"key": self.key, "values": self.values}))
        except (OSError, UserError) as error:
            if self._kept:
                LOG.warning("measurements are not kept for a later search: %s", error)
            self._kept = False


def check_state(file: str | Path | None) -> None:
    """Refuses a file of the user's to keep measurements in that cannot be written, or has others'
    contents: it would be replaced."""
    if file is not None:
        check_file(path := Path(file))
        if path.exists() and not read_text(path).startswith('{"key": "search-'):
            raise UserError(f"{file} holds no measurements of a search", hint="name another file")


def state_of(job: Job, calls: Iterable[Iterable[np.ndarray]], file: str | Path | None) -> State:
    """The state of searching for a job, with the calls that errors are measured on; in the store,
    or in a file that the user names."""
    pipeline = job.pipeline
    path = Cache("search").path(
        [
            pipeline.settings.model_dump(mode="json"),
            [rule.model_dump(mode="json") for rule in pipeline.rules],
            [[level, list(map(repr, passes))] for level, passes in pipeline.passes.items()],
            job.target.model_dump(mode="json"),
            program_digest(job.source.program),
            [list(inputs) for inputs in job.data or ()],
            [list(inputs) for inputs in calls],
        ]
    )
    return State(Path(file) if file else path, path.name)


CALLS = 8  # of a job


def sensitivities(
    work: Choices, state: State, progress: Progress, workers: Workers = HERE
) -> list[list[float]]:
    """The error at the model's outputs when one group alone takes an option, for all of them."""
    groups = work.switch.groups
    keys = {
        (g, o): f"{group.name} {json.dumps(option.candidate.rule, sort_keys=True)}"
        for g, group in enumerate(groups)
        for o, option in enumerate(group.options)
    }
    missing = [pair for pair, key in keys.items() if key not in state.values]
    items, stage = [Alone(*pair) for pair in missing], "sensitivity of layers"
    for i, found in run_jobs(work, items, workers, stage=stage, progress=progress):
        state.put(keys[missing[i]], float(found["noise"]))
    return [
        [state.values[keys[g, o]] for o in range(len(group.options))]
        for g, group in enumerate(groups)
    ]


class Judge:
    """Figures of whole choices on the evaluation set; each choice is run once."""

    def __init__(
        self, evaluation: Evaluation, work: Choices, progress: Progress, workers: Workers = HERE
    ) -> None:
        self.evaluation, self.progress, self.workers = evaluation, progress, workers
        self.work = work
        self.known: dict[Choice, Comparison] = {}

    @cached_property
    def _references(self) -> list[Outputs]:
        """The outputs of the float model, which a budget of resources alone does not need."""
        return self._run(None)

    def __call__(self, choice: Choice) -> Comparison:
        if choice not in self.known:
            self.known[choice] = self.evaluation.compare(self._references, self._run(choice))
        return self.known[choice]

    def require(self, names: Sequence[str]) -> None:
        """Measures also these figures, which `budget.check_reached` knows."""
        if names:
            given = self._of_float()
            more = dict.fromkeys(name for name in names if name not in given)
            metrics = (*self.evaluation.metrics, *more)
            self.evaluation = replace(self.evaluation, metrics=metrics)
            self._of_float()  # what a metric lacks is told now

    def _of_float(self) -> Figures:
        return figures(self.evaluation.compare(self._references, self._references))

    def _run(self, choice: Choice | None) -> list[Outputs]:
        calls = self.evaluation.calls
        parts = [calls[i : i + CALLS] for i in range(0, len(calls), CALLS)]
        items, told = [Together(choice, part) for part in parts], self.progress
        found = dict(run_jobs(self.work, items, self.workers, stage="evaluate", progress=told))
        width = len(self.evaluation.source.program.outputs)
        return [
            [found[p][f"{c}:{i}"] for i in range(width)]
            for p, part in enumerate(parts)
            for c in range(len(part))
        ]
