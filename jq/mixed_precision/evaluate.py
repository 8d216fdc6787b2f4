"""The error of a choice: of one group alone on a few samples, and of all on the evaluation set."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from jq.artifact.jobs import HERE, Workers, run_jobs
from jq.base.errors import UserError, known
from jq.base.progress import Progress
from jq.driver.comparison.metrics import NAMES, Figures
from jq.driver.comparison.outputs import Comparison
from jq.mixed_precision.budget import RESOURCES, figures
from jq.mixed_precision.choice.frontier import Choice
from jq.mixed_precision.choice.groups import Group, Option
from jq.mixed_precision.choice.sensitivity import Alone, Choices, Together
from jq.mixed_precision.state import State
from jq.reporting.measuring.evaluation import Evaluation, Outputs

CALLS = 8  # of a job


def sensitivities(
    work: Choices, state: State, progress: Progress, workers: Workers = HERE
) -> list[list[float]]:
    """The error at the model's outputs when one group alone takes an option, for all of them."""
    groups = work.switch.groups
    keys = {
        (g, o): state_key(group, option)
        for g, group in enumerate(groups)
        for o, option in enumerate(group.options)
    }
    missing = [pair for pair, key in keys.items() if state.get(key) is None]
    items, stage = [Alone(*pair) for pair in missing], "sensitivity of layers"
    for i, found in run_jobs(work, items, workers, stage=stage, progress=progress):
        state.put(keys[missing[i]], float(found["noise"]))
    return [
        [state.values[keys[g, o]] for o in range(len(group.options))]
        for g, group in enumerate(groups)
    ]


def state_key(group: Group, option: Option) -> str:
    return f"{group.name} {json.dumps(option.candidate.rule, sort_keys=True)}"


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

    def require(self, names: Iterable[str]) -> None:
        """Measures also these figures.

        Raises:
            UserError: nothing gives one of them.
        """
        wanted = list(names)
        if not wanted:
            return
        given = self._of_float()
        for name in wanted:
            if name in given:
                continue
            if name not in NAMES:
                hint = known(name, dict.fromkeys((*given, *NAMES, *RESOURCES)))
                raise UserError(f"no figure {name!r} to hold a budget", hint=hint)
            metrics = (*self.evaluation.metrics, name)
            self.evaluation = replace(self.evaluation, metrics=metrics)
        self._of_float()  # what a metric lacks is told now

    def _of_float(self) -> Figures:
        return figures(self.evaluation.compare(self._references, self._references))

    def _run(self, choice: Choice | None) -> list[Outputs]:
        calls = self.evaluation.calls
        parts = [calls[i : i + CALLS] for i in range(0, len(calls), CALLS)]
        items = [Together(choice, part) for part in parts]
        found = dict(
            run_jobs(self.work, items, self.workers, stage="evaluate", progress=self.progress)
        )
        width = len(self.evaluation.source.program.outputs)
        return [
            [found[p][f"{c}:{i}"] for i in range(width)]
            for p, part in enumerate(parts)
            for c in range(len(part))
        ]
