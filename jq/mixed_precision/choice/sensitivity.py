"""Sensitivity of a model to choices: the error of one group alone, or of all together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jq.artifact.jobs import Result, Work
from jq.driver.comparison.error_sum import ErrorSum, is_integer
from jq.mixed_precision.choice.switch import Choice, SwitchProgram

Outputs = Sequence[np.ndarray]  # of one call


@dataclass(frozen=True)
class Alone:
    """One group takes an option, all others stay float. The result: `noise`."""

    group: int
    option: int


@dataclass(frozen=True)
class Together:
    """All groups take an option (None: stay float). The result: `CALL:OUTPUT` of these calls."""

    choice: Choice | None
    calls: Sequence[Outputs]


@dataclass(frozen=True)
class Choices(Work):
    """One work for both kinds of jobs: a worker compiles the program of all choices once.

    Attributes:
        calls: that errors of one group alone are measured on.
    """

    switch: SwitchProgram
    calls: Sequence[Outputs]

    def open(self) -> Callable[[Alone | Together], Result]:
        references: list[Outputs] = []

        def done(item: Alone | Together) -> Result:
            if isinstance(item, Together):
                return self._outputs(item)
            if not references:
                references.extend(self._run(None, self.calls))
            options = [None if g != item.group else item.option for g in range(self._count)]
            found = noise(references, self._run(options, self.calls))
            return {"noise": np.array(found, np.float64)}

        return done

    def _outputs(self, item: Together) -> Result:
        results = self._run(item.choice, item.calls)
        return {f"{c}:{i}": a for c, arrays in enumerate(results) for i, a in enumerate(arrays)}

    def _run(self, choice: Sequence[int | None] | None, calls: Sequence[Outputs]) -> list[Outputs]:
        numbers = [None] * self._count if choice is None else choice
        pairs = zip(self.switch.groups, numbers, strict=True)
        self.switch.choose([None if n is None else g.options[n] for g, n in pairs])
        return [self.switch(call) for call in calls]

    @property
    def _count(self) -> int:
        return len(self.switch.groups)


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
