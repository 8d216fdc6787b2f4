"""Distance of a quantized model from its float model, over a stream of batches.

Sums are kept, not outputs, so that a comparison takes the memory of one batch; only a
metric of the user's needs all outputs at once.

For a float output r and its quantized q, over all elements of all samples:
    sqnr_db       = 10 log10(sum r^2 / sum (r - q)^2), inf when equal
    cosine        = mean over samples of <r, q> / (|r| |q|) of the flattened sample,
                    1 when both are zero, 0 when one is
    max_abs_error = max |r - q|
An element that is NaN or inf on one side and different on the other counts in `nonfinite`,
makes the error infinite and its sample's cosine 0. Equal infinities (a mask) count as equal.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.driver.comparison.metrics import ERRORS, Evaluated, Figures, Metric, evaluate, needs_outputs
from jq.driver.comparison.result import (
    NOTHING_INSIDE,
    Comparison,
    ErrorSum,
    Inside,
    OutputError,
    is_integer,
)

Outputs = Sequence[Any]  # arrays, in the order of the program's outputs


def samples_of(inputs: Sequence[Any]) -> int:
    """Samples in one call: the leading dimension that all inputs share, else 1."""
    leading = {np.shape(x)[0] if np.ndim(x) > 1 else 1 for x in inputs}
    return leading.pop() if len(leading) == 1 else 1


class Comparer:
    """Adds up pairs of results; `keep` holds the outputs for a metric."""

    def __init__(self, names: Sequence[str] | None = None, *, keep: bool = False) -> None:
        self.names, self.keep = names, keep
        self.sums: list[ErrorSum] = []
        self.specs: list[tuple[tuple[int, ...], bool]] = []
        self.kept: tuple[list[list[np.ndarray]], list[list[np.ndarray]]] = ([], [])
        self.samples = 0

    def add(self, reference: Outputs, quantized: Outputs, samples: int = 1) -> None:
        """One call's outputs. An output whose leading dimension is `samples` has one a row."""
        pairs = [(np.asarray(r), np.asarray(q)) for r, q in zip(reference, quantized, strict=True)]
        if not self.sums:
            self.sums = [ErrorSum() for _ in pairs]
            self.specs = [(r.shape, is_integer(r)) for r, _ in pairs]
        for i, (total, (r, q)) in enumerate(zip(self.sums, pairs, strict=True)):
            if r.shape != q.shape:
                raise UserError(f"output is {q.shape}, float gives {r.shape}", op=self.name(i))
            total.add(r, q, samples if r.ndim > 1 and r.shape[0] == samples else 1)
        if self.keep:
            for side, arrays in zip(self.kept, zip(*pairs, strict=True), strict=True):
                side.append(list(arrays))
        self.samples += samples

    def name(self, index: int) -> str:
        return self.names[index] if self.names else f"output{index}"

    def stacked(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """All outputs of (float, quantized), the samples along the leading axis."""
        reference, quantized = ([_join(call) for call in zip(*s, strict=True)] for s in self.kept)
        return reference, quantized

    def result(
        self,
        metrics: Sequence[Metric] = (),
        labels: Any = None,
        rebuild: Callable[[list[np.ndarray]], Any] | None = None,
        inside: Inside = NOTHING_INSIDE,
    ) -> Comparison:
        outputs = tuple(
            _output_error(self.name(i), shape, total, integer)
            for i, (total, (shape, integer)) in enumerate(zip(self.sums, self.specs, strict=True))
        )
        both = self.stacked() if self.keep else ([], [])
        found = Evaluated(*both, worst(outputs), labels, rebuild)
        figures: Figures = {}
        for metric in metrics:
            figures |= evaluate(metric, found)
        return Comparison(outputs, inside.layers, figures, self.samples, inside.activations)


def _output_error(name: str, shape: tuple[int, ...], total: ErrorSum, integer: bool) -> OutputError:
    return OutputError(
        name=name,
        shape=shape,
        sqnr_db=total.sqnr_db,
        cosine=total.cosine,
        cosine_min=min(total.cosines, default=1.0),
        max_abs_error=total.max_abs_error,
        match=total.equal / total.count if integer and total.count else None,
        nonfinite=total.nonfinite,
    )


def worst(outputs: Sequence[OutputError]) -> dict[str, float]:
    """The errors by name, of the float output where each is worst (of any without a float one)."""
    judged = [o for o in outputs if o.match is None] or outputs
    found = {
        name: (max if name == "max_abs_error" else min)(getattr(o, name) for o in judged)
        for name in ERRORS.keys() - {"match"}
    }
    matches = [o.match for o in outputs if o.match is not None]
    return {**found, "match": min(matches, default=math.nan)}


def _join(calls: Sequence[np.ndarray]) -> np.ndarray:
    """Calls along the leading axis; vectors and scalars are one sample each."""
    return np.concatenate(calls) if calls[0].ndim > 1 else np.stack(calls)


def compare_outputs(
    reference: Iterable[Outputs],
    quantized: Iterable[Outputs],
    *,
    names: Sequence[str] | None = None,
    samples: Iterable[int] | None = None,
    labels: Any = None,
    metrics: Sequence[Metric] = (),
    rebuild: Callable[[list[np.ndarray]], Any] | None = None,
    inside: Inside = NOTHING_INSIDE,
) -> Comparison:
    """Compares two streams of results, one entry a call.

    Args:
        reference, quantized: the outputs of each call, as flat sequences of arrays.
        names: of the outputs; `output0`, ... by default.
        samples: samples in each call (`samples_of(inputs)`); one by default.
        labels: one per sample, for metrics that want them.
        metrics: see `jq.driver.comparison.metrics`.
        rebuild: gives the outputs the shape that a user's metric sees (by default the one
            output, or the list).
        inside: errors inside the model, passed through.
    """
    comparer = Comparer(names, keep=needs_outputs(metrics))
    counts = repeat(1) if samples is None else samples
    for (r, q), count in zip(zip(reference, quantized, strict=True), counts, strict=False):
        comparer.add(r, q, count)
    if not comparer.sums:
        raise UserError("nothing to compare", hint="give at least one batch of inputs")
    return comparer.result(metrics, labels, rebuild, inside)


__all__ = ["Comparer", "Comparison", "compare_outputs", "samples_of", "worst"]
