"""Evaluation: the data and metrics that a model is judged by."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jq.base import LOG, Progress, UserError, check_type
from jq.base.tree import structure_of, unflatten
from jq.driver.comparison.metrics import Metric, check, checked_labels
from jq.driver.comparison.outputs import Outputs, compare_outputs, samples_of
from jq.driver.comparison.result import NOTHING_INSIDE, Comparison, Inside
from jq.frontends.model import Model
from jq.frontends.source import AnyModel, Calls, Data, Sized, Source, trace
from jq.frontends.tracing.source import load_function, load_model

BATCHES = 8  # of random codes


@dataclass(frozen=True)
class Evaluation:
    """Flat inputs call by call, labels one a sample (or None), and the metrics of a model."""

    source: Source
    calls: Calls
    labels: Any
    metrics: tuple[Metric, ...]

    def compare(
        self,
        reference: Iterable[Outputs],
        quantized: Iterable[Outputs],
        inside: Inside = NOTHING_INSIDE,
    ) -> Comparison:
        """Compares the outputs of both models, call by call."""
        program = self.source.program
        structure = structure_of(program.out_tree, len(program.outputs))
        return compare_outputs(
            reference,
            quantized,
            names=[o.name for o in program.outputs],
            samples=[samples_of(arrays) for arrays in self.calls],
            labels=self.labels,
            metrics=self.metrics,
            rebuild=lambda leaves: unflatten(structure, leaves),
            inside=inside,
        )

    def check_labels(self, metrics: Iterable[Metric]) -> None:
        """Refuses labels that `accuracy`, when it is asked for, would refuse after long work."""
        if "accuracy" in metrics and self.labels is not None and self.source.program.outputs:
            # As `compare_outputs` joins the calls and `top1` takes the last axis.
            shape, calls = self.source.program.outputs[0].shape, len(self.calls)
            joined = (calls * shape[0], *shape[1:-1]) if len(shape) > 1 else (calls,)
            checked_labels(self.labels, joined)

    def tracked(self, progress: Progress, stage: str) -> Iterator[Sequence[np.ndarray]]:
        """The calls, while `progress` is told."""
        for i, arrays in enumerate(self.calls):
            progress(stage, i / len(self.calls))
            yield arrays


def check_metrics(
    model: AnyModel, metric: Metric | Sequence[Metric] | None, labels: Any
) -> AnyModel:
    """The model, no longer a name; refuses unknown metrics, functions that there are not, and
    `accuracy` where there can be no labels, before slow work."""
    if isinstance(model, Sized):
        model = trace(model)
    if isinstance(model, str | Path):
        model = load_model(str(model))
    owner = model.model if isinstance(model, Source) else model
    has_labels = labels is not None or (isinstance(owner, Model) and owner.labels is not None)
    for name in several(metric):
        if isinstance(name, str) and ":" in name:
            load_function(name)
        elif isinstance(name, str) and check(name) == "accuracy" and not has_labels:
            raise UserError("accuracy needs labels", hint="give labels=... (--labels FILE.npy)")
    return model


def several(metric: Metric | Sequence[Metric] | None) -> tuple[Metric, ...]:
    if metric is None:
        return ()
    check_type("metric", metric, str, Callable, list, tuple)
    found = tuple(metric) if isinstance(metric, list | tuple) else (metric,)
    for each in found:
        check_type("a metric", each, str, Callable)
    return found


def _codes(source: Source) -> list[tuple[np.ndarray, ...]]:
    """Random codes of a file that takes nothing else, and has no values of its own."""
    examples = source.model.example_inputs if source.model else ()
    small = all(spec.dtype in ("int8", "uint8") for spec in source.program.inputs)
    if not examples or not small or any(hasattr(x, "__array__") for x in examples):
        return []
    LOG.warning("compared on random codes; --inputs FILE.npz (data=...) has others")
    rng, specs = np.random.default_rng(0), source.program.inputs
    draws = [[rng.bytes(math.prod(spec.shape)) for spec in specs] for _ in range(BATCHES)]
    return [
        tuple(np.frombuffer(b, s.dtype).reshape(s.shape) for b, s in zip(one, specs, strict=True))
        for one in draws
    ]


def evaluation_of(
    source: Source, data: Data, labels: Any, metric: Metric | Sequence[Metric] | None
) -> Evaluation:
    """The data and metrics that were given, else the model's. Its own metric is for its own set."""
    owner = source.model
    if (own := data) is None and owner:
        own = owner.evaluation or _codes(source) or [owner.example_inputs]
    calls = source.calls(own)
    if not calls:
        raise UserError("nothing to compare on", hint="give --inputs FILE.npz (data=...)")
    labelled = data is None and owner is not None and owner.evaluation is not None
    if labels is None and labelled and owner:
        labels = owner.labels() if callable(owner.labels) else owner.labels
    if metric is None and labelled and owner:
        metric = owner.metric
    if metric is None:
        metric = () if labels is None else ("accuracy", "top1_agreement")
    named = several(metric)
    loaded = (load_function(m) if isinstance(m, str) and ":" in m else m for m in named)
    found = Evaluation(source, calls, labels, tuple(check(m) for m in loaded))
    found.check_labels(found.metrics)
    return found
