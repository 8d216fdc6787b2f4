"""The error at a model's outputs that one choice for one group makes alone, measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jq.choice.switch import SwitchProgram
from jq.comparison.error_sum import ErrorSum, is_integer
from jq.jobs import Result, Work

Outputs = Sequence[np.ndarray]  # of one call


@dataclass(frozen=True)
class Sensitivity(Work):
    """A job is the numbers of a group and of one of its options; its result, the error that they
    make alone."""

    switch: SwitchProgram
    calls: Sequence[Outputs]

    def open(self) -> Callable[[tuple[int, int]], Result]:
        switch, groups = self.switch, self.switch.groups
        switch.choose([None] * len(groups))
        references = [switch(call) for call in self.calls]

        def error(item: tuple[int, int]) -> Result:
            g, o = item
            switch.choose([group.options[o] if i == g else None for i, group in enumerate(groups)])
            found = noise(references, [switch(call) for call in self.calls])
            return {"noise": np.array(found, np.float64)}

        return error


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
