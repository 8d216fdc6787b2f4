"""What the page shows, measured: errors, histograms, sizes, latency, the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jq.api import rewrite_job
from jq.artifact.manifest import Manifest
from jq.calibration.histogram import Histogram
from jq.calibration.run import calibrate
from jq.comparison.layers import compare_layers
from jq.comparison.metrics import Metric
from jq.comparison.outputs import Comparison
from jq.compiled import load
from jq.formats import get_format
from jq.job import AnyModel, Calls, Data, Job, trace
from jq.measuring.evaluation import check_metrics, evaluation_of
from jq.measuring.measure import bench, compare_compiled, plan_again
from jq.passes.isolated import parts_of
from jq.planning import QuantPlan
from jq.progress import Progress

BINS = 64


@dataclass(frozen=True)
class Shape:
    """A histogram: edges f64[n + 1], counts [n], and the ends of what codes stand for."""

    name: str
    edges: np.ndarray
    counts: np.ndarray
    clip: tuple[float, float] | None
    note: str


@dataclass(frozen=True)
class Facts:
    """Everything on the page. `audit` and `latency` are the documents of `inspect` and `bench`."""

    name: str
    manifest: Manifest
    comparison: Comparison
    weights: list[Shape]
    activations: list[Shape]
    audit: dict[str, Any]
    latency: dict[str, Any]


def gather(
    model: AnyModel,
    directory: Path,
    data: Data,
    metric: Metric | Sequence[Metric] | None,
    labels: Any,
    calibration: Data,
    samples: int,
    seconds: float,
    progress: Progress,
) -> Facts:
    """Compares an artifact with its model; layers and histograms on the first `samples` calls."""
    check_metrics(model, metric, labels)
    compiled = load(directory)
    source = trace(model)
    given = evaluation_of(source, data, labels, metric)
    job, plan = plan_again(source, compiled, calibration)
    levels, calls = rewrite_job(job, plan), given.calls[:samples]
    inside = compare_layers(levels["float"], levels["qdq"], plan, calls, progress)
    comparison = compare_compiled(given, compiled, progress, inside)
    return Facts(
        name=source.model.name if source.model else str(model),
        manifest=compiled.manifest,
        comparison=comparison,
        weights=_weights(job, plan, levels["qdq"].weights),
        activations=_activations(job, calls, comparison),
        audit=compiled.audit().to_dict(),
        latency=bench(directory, seconds=seconds, progress=progress),
    )


def _weights(job: Job, plan: QuantPlan, stored: Mapping[str, np.ndarray]) -> list[Shape]:
    shapes = []
    for name, enc in plan.weights.items():
        weight = job.program.weights[name]
        parts = parts_of(weight, name, enc, stored)
        decoded = get_format(enc.format).to_numpy(parts, enc)
        flat = weight.astype(np.float64).reshape(-1)
        counts, edges = np.histogram(flat, BINS)
        clip = float(decoded.min()), float(decoded.max())
        note = f"{enc.format} {enc.granularity}, codes from {clip[0]:.4g} to {clip[1]:.4g}"
        shapes.append(Shape(name, edges, counts, clip, note))
    return shapes


def _activations(job: Job, calls: Calls, comparison: Comparison) -> list[Shape]:
    ranges = calibrate(job.program, calls, "mse")
    shapes = []
    for row in comparison.activations:
        packed = ranges.statistics.get(row.name)
        if packed is None:
            continue
        h = Histogram.of(packed[0])
        if not len(h.counts):
            continue
        first = np.floor(h.low / h.width) * h.width
        edges = first + h.width * np.arange(len(h.counts) + 1)
        clip = None if row.clip_low is None else (row.clip_low, row.clip_high or 0.0)
        note = row.kind if clip is None else f"{row.kind}, {row.saturation:.3%} beyond"
        shapes.append(Shape(row.name, edges, h.counts, clip, note))
    return shapes
