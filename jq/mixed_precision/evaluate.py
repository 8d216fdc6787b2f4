"""The error of a choice: of one group alone on a few samples, and of all on the evaluation set."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from jq.comparison.error_sum import ErrorSum, is_integer
from jq.comparison.metrics import NAMES, Figures
from jq.comparison.outputs import Comparison
from jq.errors import UserError, known
from jq.measuring.evaluation import Evaluation, Outputs
from jq.mixed_precision.budget import RESOURCES, figures
from jq.mixed_precision.frontier import Choice
from jq.mixed_precision.groups import Group, Option
from jq.mixed_precision.state import State
from jq.mixed_precision.switch import SwitchProgram
from jq.progress import Progress


def sensitivities(
    switch: SwitchProgram, calls: Sequence[Outputs], state: State, progress: Progress
) -> list[list[float]]:
    """The error at the model's outputs when one group alone takes an option, for all of them."""
    jobs = [(g, o) for g, group in enumerate(switch.groups) for o in range(len(group.options))]
    errors: list[list[float]] = [[0.0] * len(group.options) for group in switch.groups]
    references: list[Outputs] = []
    for done, (g, o) in enumerate(jobs):
        group = switch.groups[g]
        progress("sensitivity of layers", done / len(jobs))
        key = state_key(group, group.options[o])
        known = state.get(key)
        if known is None:
            if not references:
                switch.choose([None] * len(switch.groups))
                references = [switch(call) for call in calls]
            switch.choose([group.options[o] if i == g else None for i in range(len(errors))])
            known = noise(references, [switch(call) for call in calls])
            state.put(key, known)
        errors[g][o] = known
    return errors


def state_key(group: Group, option: Option) -> str:
    return f"{group.name} {json.dumps(option.candidate.rule, sort_keys=True)}"


def noise(reference: Sequence[Outputs], quantized: Sequence[Outputs]) -> float:
    """Noise power over signal power, summed over the float outputs.

    Of a program without any: the share of elements that differ.
    """
    shares = []
    for r, q in zip(zip(*reference, strict=True), zip(*quantized, strict=True), strict=True):
        if is_integer(r[0]):
            continue
        total = ErrorSum()
        for pair in zip(r, q, strict=True):
            total.add(*pair)
        broken = total.nonfinite or (total.noise and not total.signal)
        shares.append(np.inf if broken else total.noise / (total.signal or 1.0))
    if shares:
        return float(sum(shares))
    pairs = [
        p for calls in zip(reference, quantized, strict=True) for p in zip(*calls, strict=True)
    ]
    return float(np.mean([np.mean(r != q) for r, q in pairs]))


class Judge:
    """Figures of whole choices on the evaluation set; each choice is run once."""

    def __init__(self, evaluation: Evaluation, switch: SwitchProgram, progress: Progress) -> None:
        self.evaluation, self.switch, self.progress = evaluation, switch, progress
        self.known: dict[Choice, Comparison] = {}
        self._references = list(self._run(None))

    def __call__(self, choice: Choice) -> Comparison:
        if choice not in self.known:
            self.known[choice] = self.evaluation.compare(self._references, self._run(choice))
        return self.known[choice]

    def require(self, names: Iterable[str]) -> None:
        """Measures also these figures.

        Raises:
            UserError: nothing gives one of them.
        """
        given = self._of_float()
        for name in names:
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

    def _run(self, choice: Choice | None) -> Iterator[Outputs]:
        groups = self.switch.groups
        self.switch.choose(
            [None if choice is None else g.options[choice[i]] for i, g in enumerate(groups)]
        )
        for call in self.evaluation.tracked(self.progress, "evaluate"):
            yield self.switch(call)
