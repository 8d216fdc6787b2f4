"""Distance of a quantized model from its float model, over a stream of batches.

Sums are kept, not outputs, so that a comparison takes the memory of one batch; only a
metric of the user's needs all outputs at once.

For a float output r and its quantized q, over all elements of all samples:
    sqnr_db       = 10 log10(sum r^2 / sum (r - q)^2), inf when equal
    cosine        = mean over samples of <r, q> / (|r| |q|) of the flattened sample,
                    1 when both are zero, 0 when one is
    max_abs_error = max |r - q|
An element that is NaN or inf on one side and different on the other counts in `nonfinite`,
makes the error infinite and its sample's cosine 0. Equal infinities (a mask) count as equal,
and NaN on both sides; `undefined` is how many elements are NaN in the float model."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.driver.comparison import result
from jq.driver.comparison.metrics import ERRORS, Evaluated, Figures, Metric, evaluate

Outputs = Sequence[Any]  # arrays, in the order of the program's outputs


def samples_of(inputs: Sequence[Any]) -> int:
    """Samples in one call: the leading dimension that all inputs share, else 1."""
    leading = {np.shape(x)[0] if np.ndim(x) > 1 else 1 for x in inputs}
    return leading.pop() if len(leading) == 1 else 1


def worst(outputs: Sequence[result.OutputError]) -> dict[str, float]:
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
    inside: result.Inside = result.NOTHING_INSIDE,
) -> result.Comparison:
    """Compares two streams of results, one entry a call.

    Args:
        reference, quantized: the outputs of each call, as flat sequences of arrays.
        names: of the outputs; `output0`, ... by default.
        samples: samples in each call (`samples_of(inputs)`); one by default.
        labels: one per sample, for metrics that want them.
        metrics: see `jq.driver.comparison.metrics`.
        rebuild: gives the outputs the shape that a user's metric sees (by default the one
            output, or the list).
        inside: errors inside the model, passed through."""
    keep, total_samples = any(m not in ERRORS for m in metrics), 0
    sums: list[result.ErrorSum] = []
    first: list[np.ndarray] = []  # the float model's outputs of the first call
    kept: list[list[tuple[np.ndarray, np.ndarray]]] = []  # pairs, call by call
    counts = repeat(1) if samples is None else samples
    for (ours, theirs), count in zip(zip(reference, quantized, strict=True), counts, strict=False):
        pairs = [(np.asarray(r), np.asarray(q)) for r, q in zip(ours, theirs, strict=True)]
        first = first or [r for r, _ in pairs]
        sums = sums or [result.ErrorSum() for _ in pairs]
        names = names or [f"output{i}" for i in range(len(pairs))]
        for name, total, (r, q) in zip(names, sums, pairs, strict=True):
            if r.shape != q.shape:
                raise UserError(f"output is {q.shape}, float gives {r.shape}", op=name)
            # An output whose leading dimension is the number of samples has one a row.
            total.add(r, q, count if r.ndim > 1 and r.shape[0] == count else 1)
        kept += [pairs] * keep
        total_samples += count
    if not sums:
        raise UserError("nothing to compare", hint="give at least one batch of inputs")
    outputs = tuple(
        result.OutputError(
            name=name,
            shape=r.shape,
            sqnr_db=total.sqnr_db,
            cosine=total.cosine,
            cosine_min=min(total.cosines, default=1.0),
            max_abs_error=total.max_abs_error,
            match=total.equal / total.count if result.is_integer(r) and total.count else None,
            nonfinite=total.nonfinite,
            undefined=total.undefined,
        )
        for name, r, total in zip(names or (), first, sums, strict=True)
    )
    ours, theirs = (
        [_join([call[side] for call in calls]) for calls in zip(*kept, strict=True)]
        for side in (0, 1)
    )
    found = Evaluated(ours, theirs, worst(outputs), labels, rebuild)
    figures: Figures = {}
    for metric in metrics:
        figures |= evaluate(metric, found)
    return result.Comparison(outputs, inside.layers, figures, total_samples, inside.activations)
