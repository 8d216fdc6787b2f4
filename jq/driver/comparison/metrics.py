"""Measures of a whole evaluation set: built in by name, or a function of the user's.

`sqnr_db` (also `sqnr`), `cosine`, `cosine_min` and `max_abs_error` are those of the output that
is worst, `match` that of the worst integer output (NaN without one); `accuracy`,
`top1_agreement` and `retrieval_agreement` look at the first output.

A function is told apart by its number of arguments. It returns a number, which gets the
function's name, or a mapping of names to numbers:
    f(outputs), f(outputs, labels)       called once for each model
    f(reference, quantized, labels)      called with both, and with float twice
`outputs` are those of all calls, stacked along the leading axis, shaped as the model's result."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.base.errors import OF_USERS, JqError, UserError, known

Metric = str | Callable[..., Any]
Figures = dict[str, dict[str, float]]  # name -> {"float", "quantized"}
Arrays = Sequence[np.ndarray]

# Of outputs that are equal.
ERRORS = {"sqnr_db": np.inf, "cosine": 1.0, "cosine_min": 1.0, "max_abs_error": 0.0, "match": 1.0}
ALIASES = {"sqnr": "sqnr_db", "top1": "top1_agreement", "retrieval": "retrieval_agreement"}


def top1(scores: np.ndarray) -> np.ndarray:
    """The class of each sample: scores [n, classes] -> i64[n]; integer labels [n] pass through."""
    return np.asarray(scores, np.float64).argmax(-1) if scores.ndim > 1 else scores


def accuracy(scores: np.ndarray, labels: Any) -> float:
    """The share of samples whose top-1 class is the label, in [0, 1], of scores [n, classes] or
    classes [n]; `UserError` where there are not as many labels as samples."""
    predictions = top1(np.asarray(scores))
    return float(np.mean(predictions == checked_labels(labels, predictions.shape)))


def checked_labels(labels: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Labels of predictions of a shape: as many, and numbers of classes."""
    labels = np.asarray(labels)
    if labels.shape != shape:
        hint = "give one label per sample of the evaluation set"
        raise UserError(f"{labels.shape} labels for {shape} predictions", hint=hint)
    whole = labels.dtype.kind == "f" and not (labels % 1).any()
    if labels.dtype.kind not in "biu" and not whole:
        hint = "give the number of each sample's class"
        raise UserError(f"labels of type {labels.dtype} are no classes", hint=hint)
    return labels


def top1_agreement(reference: np.ndarray, quantized: np.ndarray) -> float:
    """The share of samples for which both models, by scores [n, classes], choose the same class."""
    return float(np.mean(top1(reference) == top1(quantized)))


def retrieval_agreement(reference: np.ndarray, quantized: np.ndarray) -> float:
    """The share of embeddings [n, d] whose nearest other one, by cosine, is the same."""
    if len(reference) < 3:
        raise UserError("retrieval agreement needs at least 3 embeddings")
    return float(np.mean(_nearest(reference) == _nearest(quantized)))


def _nearest(embeddings: np.ndarray) -> np.ndarray:
    x = np.asarray(embeddings, np.float64).reshape(len(embeddings), -1)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    similarity = x @ x.T
    np.fill_diagonal(similarity, -np.inf)
    return similarity.argmax(1)


AGREEMENTS = {f.__name__: f for f in (top1_agreement, retrieval_agreement)}
DESCRIPTIONS = {
    "sqnr_db": "signal over quantization noise of the worst output, in dB; larger is better",
    "cosine": "cosine of float and quantized output, mean over the samples, of the worst output",
    "cosine_min": "cosine of the worst sample of the worst output",
    "max_abs_error": "largest difference of an element of the worst output",
    "match": "share of equal elements of the worst integer output",
    "accuracy": "share of samples whose largest score is at the label; needs labels",
    "top1_agreement": "share of samples for which both models choose the same class",
    "retrieval_agreement": "share of embeddings whose nearest other embedding is the same one",
}
NAMES = (*ERRORS, "accuracy", *AGREEMENTS)
BETWEEN = {*ERRORS, *AGREEMENTS}  # figures of the one model against the other, with no float beside


@dataclass(frozen=True)
class Evaluated:
    """Both models on a whole evaluation set.

    Attributes:
        reference, quantized: all outputs stacked over the calls; empty when no metric needs them.
        errors: of the worst output, by the names in `ERRORS`.
        labels: one a sample, or None.
        rebuild: gives outputs the shape of the model's result."""

    reference: Arrays
    quantized: Arrays
    errors: Mapping[str, float]
    labels: Any = None
    rebuild: Callable[[list[np.ndarray]], Any] | None = None

    def shaped(self, outputs: Arrays) -> Any:
        if self.rebuild:
            return self.rebuild(list(outputs))
        return outputs[0] if len(outputs) == 1 else list(outputs)


def check(metric: Metric) -> Metric:
    """A function as it is, a name as it is written above; `UserError` where there is none such."""
    if callable(metric):
        return metric
    name = ALIASES.get(metric, metric)
    if name not in NAMES:
        hint = f"{known(name, NAMES)}; or give file.py:name"
        raise UserError(f"unknown metric {metric!r}", hint=hint)
    return name


def evaluate(metric: Metric, found: Evaluated) -> Figures:
    """The figures of one metric for both models."""
    if callable(metric):
        return _of_function(metric, found)
    if metric in ERRORS:
        return {metric: {"float": ERRORS[metric], "quantized": found.errors[metric]}}
    r, q = found.reference[0], found.quantized[0]
    if metric in AGREEMENTS:
        return {metric: {"float": 1.0, "quantized": AGREEMENTS[metric](r, q)}}
    if found.labels is None:
        raise UserError("accuracy needs labels", hint="give labels=... (--labels FILE.npy)")
    both = accuracy(r, found.labels), accuracy(q, found.labels)
    return {metric: {"float": both[0], "quantized": both[1]}}


def _of_function(metric: Callable[..., Any], found: Evaluated) -> Figures:
    """A user's function on both models, by the number of its arguments."""
    name, count = getattr(metric, "__name__", type(metric).__name__), _arguments(metric)
    r, q = found.shaped(found.reference), found.shaped(found.quantized)
    if count > 2:
        calls = [(r, r, found.labels), (r, q, found.labels)]
    else:
        calls = [(r, found.labels)[:count], (q, found.labels)[:count]]
    try:
        values = [metric(*arguments) for arguments in calls]
        before, after = (
            {k: float(v) for k, v in (x if isinstance(x, Mapping) else {name: x}).items()}
            for x in values
        )
        return {k: {"float": v, "quantized": after[k]} for k, v in before.items()}
    except JqError:
        raise
    except OF_USERS as error:  # the user's code
        raise UserError(f"metric {name} failed: {type(error).__name__}: {error}") from error


def _arguments(metric: Callable[..., Any]) -> int:
    """1, 2 or 3: how many arguments a function is called with."""
    try:
        parameters = inspect.signature(metric).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have none
        return 2
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    required = sum(p.default is p.empty for p in positional)
    return min(max(required, min(len(positional), 2)), 3)
