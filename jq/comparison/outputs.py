"""How far a quantized model is from its float model, over a stream of batches.

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

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from jq.comparison.error_sum import ErrorSum, is_integer
from jq.comparison.metrics import ERRORS, Evaluated, Figures, Metric, evaluate, needs_outputs
from jq.errors import UserError
from jq.tables import plain_table, to_html, to_text

Outputs = Sequence[Any]  # arrays, in the order of the program's outputs


@dataclass(frozen=True)
class OutputError:
    """Error of one output; `match` is the share of equal elements of an integer output."""

    name: str
    shape: tuple[int, ...]
    sqnr_db: float
    cosine: float
    cosine_min: float
    max_abs_error: float
    match: float | None
    nonfinite: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "shape": list(self.shape)}


@dataclass(frozen=True)
class LayerError:
    """Error of one op's result inside the model.

    `sqnr_db`, `cosine` and `max_abs_error` are accumulated: of the quantized model against the
    float model. `isolated_*`: this op alone is quantized, what it reads is float.
    """

    name: str
    op: str
    sqnr_db: float
    cosine: float
    max_abs_error: float
    isolated_sqnr_db: float
    isolated_cosine: float
    isolated_max_abs_error: float

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class ActivationRange:
    """What an op reads: the values seen in the float model, and how they are quantized.

    Attributes:
        name: `<op name>:<operand number>`.
        kind: `static`, `dynamic`, `given` (by the model itself) or `float`.
        low, high: smallest and largest value.
        clip_low, clip_high: the ends of what static codes stand for; None for other kinds.
        saturation: share of the elements beyond these ends (0 for other kinds).
    """

    name: str
    kind: str
    low: float
    high: float
    clip_low: float | None
    clip_high: float | None
    saturation: float

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Inside:
    """What happens inside a model."""

    layers: tuple[LayerError, ...] = ()
    activations: tuple[ActivationRange, ...] = ()


NOTHING_INSIDE = Inside()


@dataclass(frozen=True, repr=False)
class Comparison:
    """Errors per output, layer and activation, and metrics of both models."""

    outputs: tuple[OutputError, ...]
    layers: tuple[LayerError, ...] = ()
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    samples: int = 0
    activations: tuple[ActivationRange, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The document of `jaxq compare --json`."""
        return {
            "outputs": [o.to_dict() for o in self.outputs],
            "layers": [layer.to_dict() for layer in self.layers],
            "activations": [a.to_dict() for a in self.activations],
            "metrics": {name: dict(both) for name, both in self.metrics.items()},
            "samples": self.samples,
        }

    def table(self) -> Table:
        title = f"Quantized against float, {self.samples} samples"
        table = plain_table(
            "output", "shape", "SQNR dB", "cosine", "worst", "max |error|", title=title
        )
        for o in self.outputs:
            shape = "x".join(map(str, o.shape)) or "scalar"
            cosines = f"{o.cosine:.6f}", f"{o.cosine_min:.6f}"
            error = Text(f"{o.max_abs_error:.4g}")
            error.append(f" {o.nonfinite} not finite" if o.nonfinite else "", style="red")
            error.append(f" {o.match:.2%} equal" if o.match is not None else "")
            table.add_row(o.name, shape, f"{o.sqnr_db:.2f}", *cosines, error)
        for name, both in self.metrics.items():
            values = ", ".join(f"{kind} {value:.4f}" for kind, value in both.items())
            table.add_row(Text(name, style="bold"), values)
        return table

    def _repr_html_(self) -> str:
        return to_html(self.table())

    def __str__(self) -> str:
        return to_text(self.table())

    __repr__ = __str__  # at a prompt, too


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
        metrics: see `jq.comparison.metrics`.
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
