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

from jq.errors import UserError
from jq.metrics import accuracy, top1_agreement
from jq.tables import to_text

Outputs = Sequence[Any]  # arrays, in the order of the program's outputs
Metric = Callable[[Any, Any], Mapping[str, float]]


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
    """Error of one op's result inside the model."""

    name: str
    op: str
    sqnr_db: float
    cosine: float

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Comparison:
    """Errors per output and per layer, and the user's metrics of both models."""

    outputs: tuple[OutputError, ...]
    layers: tuple[LayerError, ...] = ()
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    samples: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The document of `jaxq compare --json`."""
        return {
            "outputs": [o.to_dict() for o in self.outputs],
            "layers": [layer.to_dict() for layer in self.layers],
            "metrics": {name: dict(both) for name, both in self.metrics.items()},
            "samples": self.samples,
        }

    def table(self) -> Table:
        title = f"Quantized against float, {self.samples} samples"
        table = Table("output", "shape", "SQNR dB", "cosine", "worst", "max |error|", title=title)
        for o in self.outputs:
            shape = "x".join(map(str, o.shape)) or "scalar"
            note = f" [red]{o.nonfinite} not finite[/]" if o.nonfinite else ""
            note += f" {o.match:.2%} equal" if o.match is not None else ""
            cosines = f"{o.cosine:.6f}", f"{o.cosine_min:.6f}"
            error = f"{o.max_abs_error:.4g}{note}"
            table.add_row(o.name, shape, f"{o.sqnr_db:.2f}", *cosines, error)
        for name, both in self.metrics.items():
            values = ", ".join(f"{kind} {value:.4f}" for kind, value in both.items())
            table.add_row(f"[bold]{name}[/]", values)
        return table

    def __str__(self) -> str:
        return to_text(self.table())


class ErrorSum:
    """Running error of one tensor; `add` takes samples as rows: [n, ...] or, with one, [...]."""

    def __init__(self) -> None:
        self.signal = self.noise = self.max_error = 0.0
        self.cosines: list[float] = []
        self.equal = self.count = self.nonfinite = 0

    def add(self, reference: np.ndarray, quantized: np.ndarray, samples: int = 1) -> None:
        r = reference.astype(np.float64).reshape(samples, -1)
        q = quantized.astype(np.float64).reshape(samples, -1)
        same = (r == q) | (np.isnan(r) & np.isnan(q))
        finite = np.isfinite(r) & np.isfinite(q)
        broken = ~finite & ~same
        self.equal += int(same.sum())
        self.count += r.size
        self.nonfinite += int(broken.sum())
        r, q = np.where(finite, r, 0.0), np.where(finite, q, 0.0)
        self.signal += float(np.sum(r * r))
        self.noise += float(np.sum((r - q) ** 2))
        self.max_error = max(self.max_error, float(np.max(np.abs(r - q), initial=0.0)))
        self.cosines += np.where(broken.any(1), 0.0, _cosine(r, q)).tolist()

    @property
    def sqnr_db(self) -> float:
        if self.nonfinite:
            return -math.inf
        if self.noise == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def cosine(self) -> float:
        return float(np.mean(self.cosines)) if self.cosines else 1.0

    def result(self, name: str, shape: tuple[int, ...], integer: bool) -> OutputError:
        return OutputError(
            name=name,
            shape=shape,
            sqnr_db=self.sqnr_db,
            cosine=self.cosine,
            cosine_min=min(self.cosines, default=1.0),
            max_abs_error=math.inf if self.nonfinite else self.max_error,
            match=self.equal / self.count if integer and self.count else None,
            nonfinite=self.nonfinite,
        )


def _cosine(r: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Cosine of each pair of rows; scaled first, so that squares neither overflow nor vanish."""
    rows = []
    for x in (r, q):
        largest = np.max(np.abs(x), axis=1, keepdims=True, initial=0.0)
        rows.append(x / np.where(largest > 0, largest, 1.0))
    a, b = rows
    norms = np.sqrt(np.sum(a * a, axis=1) * np.sum(b * b, axis=1))  # exact where a equals b
    both_zero = ~a.any(1) & ~b.any(1)
    cosine = np.sum(a * b, axis=1) / np.where(norms > 0, norms, 1.0)
    return np.where(both_zero, 1.0, np.clip(cosine, -1.0, 1.0))


def is_integer(array: np.ndarray) -> bool:
    return array.dtype.kind in "iub" or array.dtype.name.startswith(("int", "uint"))


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
        metrics: Mapping[str, Mapping[str, float]] | None = None,
        layers: Iterable[LayerError] = (),
    ) -> Comparison:
        outputs = tuple(
            total.result(self.name(i), shape, integer)
            for i, (total, (shape, integer)) in enumerate(zip(self.sums, self.specs, strict=True))
        )
        return Comparison(outputs, tuple(layers), metrics or {}, self.samples)


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
    metric: Metric | None = None,
    rebuild: Callable[[list[np.ndarray]], Any] | None = None,
    layers: Iterable[LayerError] = (),
) -> Comparison:
    """Compares two streams of results, one entry a call.

    Args:
        reference, quantized: the outputs of each call, as flat sequences of arrays.
        names: of the outputs; `output0`, ... by default.
        samples: samples in each call (`samples_of(inputs)`); one by default.
        labels: one per sample, for `metric`, or for accuracy when there is no metric.
        metric: `metric(outputs, labels) -> {name: value}`, called once for each model with
            the outputs of all calls stacked, in the shape that `rebuild` gives them
            (by default the one output, or the list).
        layers: errors inside the model, passed through.
    """
    comparer = Comparer(names, keep=metric is not None or labels is not None)
    counts = repeat(1) if samples is None else samples
    for (r, q), count in zip(zip(reference, quantized, strict=True), counts, strict=False):
        comparer.add(r, q, count)
    if not comparer.sums:
        raise UserError("nothing to compare", hint="give at least one batch of inputs")
    metrics = _metrics(comparer, labels, metric, rebuild) if comparer.keep else {}
    return comparer.result(metrics, layers)


def _metrics(
    comparer: Comparer,
    labels: Any,
    metric: Metric | None,
    rebuild: Callable[[list[np.ndarray]], Any] | None,
) -> dict[str, dict[str, float]]:
    both = comparer.stacked()
    if metric is not None:
        shaped = [rebuild(o) if rebuild else o[0] if len(o) == 1 else o for o in both]
        values = [metric(outputs, labels) for outputs in shaped]
        return {
            name: {"float": float(value), "quantized": float(values[1][name])}
            for name, value in values[0].items()
        }
    reference, quantized = both[0][0], both[1][0]
    return {
        "accuracy": {
            "float": accuracy(reference, labels),
            "quantized": accuracy(quantized, labels),
        },
        "top1_agreement": {"float": 1.0, "quantized": top1_agreement(reference, quantized)},
    }
