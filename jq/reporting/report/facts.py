"""Contents of the page, measured: errors, histograms, sizes, latency, the plan."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.manifest import Manifest
from jq.base import Progress, Stages, UserError, temporary_folder
from jq.base.system.processor import this_processor
from jq.driver.comparison.layers import compare_layers
from jq.driver.comparison.metrics import Metric
from jq.driver.comparison.result import Comparison
from jq.driver.compiled import CompiledModel
from jq.driver.job import Job, prepare_job
from jq.driver.loading import load
from jq.driver.request import Request
from jq.driver.stages import build, plan_job, rewrite_job
from jq.formats import get_format
from jq.frontends.source import AnyModel, Data, Sized, check_files, trace
from jq.passes.isolated import parts_of
from jq.passes.pipeline import Pipeline, changed_settings, load_pipeline
from jq.planning.calibration.histogram import Histogram
from jq.planning.calibration.ranges import Ranges
from jq.planning.calibration.run import calibrate
from jq.planning.decisions import QuantPlan
from jq.reporting.doctor import describe, versions
from jq.reporting.measuring.evaluation import check_metrics, evaluation_of
from jq.reporting.measuring.measure import bench, compare_compiled, plan_again
from jq.reporting.report.graph import Graph, graph_of
from jq.reporting.report.suggest import Suggestion, suggestions
from jq.target import FLOAT, Target
from jq.target.settings import Settings

BINS = 64
DEFAULT_TARGET = "llvm-cpu"  # that of this machine


@dataclass(frozen=True)
class Shape:
    """A histogram: edges f64[n + 1], counts [n], ends of codes, and layers that read the tensor."""

    name: str
    edges: np.ndarray
    counts: np.ndarray
    clip: tuple[float, float] | None
    note: str
    layers: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Everything on the page. `audit` and the latencies are the documents of `inspect` and `bench`.

    Attributes:
        source, artifact, options: as the user gave them, for commands to paste; `options` are
            those of `jaxq compile`.
        integer_only: no layer can be given float.
        readers: the layers that read each weight.
        suggestions: rules to try, each with the layer that it is about.
        float_latency, float_note: of the float model, compiled for the same target or, where that
            has no floats, for this machine; the note says so."""

    name: str
    source: str
    artifact: str
    options: list[str]
    integer_only: bool
    manifest: Manifest
    comparison: Comparison
    graph: Graph
    readers: Mapping[str, tuple[str, ...]]
    suggestions: list[Suggestion]
    weights: list[Shape]
    activations: list[Shape]
    audit: dict[str, Any]
    latency: dict[str, Any]
    float_latency: dict[str, Any] | None
    float_note: str
    provenance: dict[str, str]


def gather(
    model: AnyModel,
    directory: Path,
    data: Data,
    metric: Metric | Sequence[Metric] | None,
    labels: Any,
    calibration: Data,
    samples: int,
    seconds: float,
    command: str | None,
    progress: Progress,
) -> Facts:
    """Compares an artifact with its model; layers and histograms on the first `samples` calls."""
    compiled = load(directory)
    check_files(data, calibration)
    source = trace(check_metrics(model, metric, labels))
    given = evaluation_of(source, data, labels, metric)
    job, plan = plan_again(source, compiled, calibration)
    calls = given.calls[:samples]
    ranges = calibrate(job.program, calls, "mse", origin="data to compare on")  # refuses NaN first
    levels = rewrite_job(job, plan, until="qdq")
    inside = compare_layers(levels["float"], levels["qdq"], plan, calls, progress)
    comparison = compare_compiled(given, compiled, progress, inside)
    asked = model.model if isinstance(model, Sized) else model
    name = source.model.name if source.model else str(asked)
    spec = asked if isinstance(asked, str) else name
    sizes = [f"--size={name}={size}" for name, size in source.sizes.items()]
    latency, float_latency, note = _latencies(job, compiled, directory, seconds, progress)
    readers = _readers(plan)
    integer_only = job.pipeline.settings.integer_only or job.target.device.integer_only
    return Facts(
        name=name,
        source=spec,
        artifact=str(directory),
        options=[*options_of(compiled.manifest, job.pipeline), *sizes],
        integer_only=integer_only,
        manifest=compiled.manifest,
        comparison=comparison,
        graph=graph_of(levels["float"], {op.name for op in plan.ops}),
        readers=readers,
        suggestions=suggestions(comparison.layers, plan, integer_only, job.target.device.products),
        weights=_weights(job, plan, levels["qdq"].weights, readers),
        activations=_activations(ranges, comparison),
        audit=compiled.audit().to_dict(),
        latency=latency,
        float_latency=float_latency,
        float_note=note,
        provenance=provenance(compiled.manifest, command, spec),
    )


def _latencies(
    job: Job, compiled: CompiledModel, directory: Path, seconds: float, progress: Progress
) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
    """The artifact's, the float model's in turns with it, and which target that is for."""
    if compiled.manifest.pipeline == FLOAT:
        return bench(directory, seconds=seconds, progress=progress), None, ""
    progress("compile the float model", None)
    note = f"The float model is compiled for {compiled.program.target}, too; both in turns."
    try:
        beside = _float_model(job, job.target)
    except UserError:  # a device without floats
        beside = _float_model(job, DEFAULT_TARGET)
        note = f"The float model is compiled for {DEFAULT_TARGET}: {job.target.name} has no floats."
    with temporary_folder() as folder:
        beside.save(folder / "float")
        both = bench(directory, against=folder / "float", seconds=2 * seconds, progress=progress)
    return both, both.pop("against"), note


def _float_model(job: Job, target: Target | str) -> CompiledModel:
    beside = prepare_job(job.source, Request(FLOAT, target, cache=True))
    return build(beside, plan_job(beside, Stages()), Stages())


def _readers(plan: QuantPlan) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for op in plan.ops:
        for weight in {p.weight for p in op.operands.values() if p.weight}:
            found[weight] = (*found.get(weight, ()), op.name)
    return found


def _weights(
    job: Job,
    plan: QuantPlan,
    stored: Mapping[str, np.ndarray],
    readers: Mapping[str, tuple[str, ...]],
) -> list[Shape]:
    shapes = []
    for name, enc in plan.weights.items():
        weight = job.program.weights[name]
        decoded = get_format(enc.format).to_numpy(parts_of(weight, name, enc, stored), enc)
        flat = weight.astype(np.float64).reshape(-1)
        counts, edges = np.histogram(flat, BINS)
        clip = float(decoded.min()), float(decoded.max())
        note = f"{enc.format} {enc.granularity}, codes from {clip[0]:.4g} to {clip[1]:.4g}"
        shapes.append(Shape(name, edges, counts, clip, note, readers.get(name, ())))
    return shapes


def _activations(ranges: Ranges, comparison: Comparison) -> list[Shape]:
    shapes = []
    for row in comparison.activations:
        packed = ranges.statistics.get(row.name)
        if packed is None:
            continue
        h = Histogram.of(packed[0])
        if not len(h.counts):
            continue
        edges = np.floor(h.low / h.width) * h.width + h.width * np.arange(len(h.counts) + 1)
        clip = None if row.clip_low is None else (row.clip_low, row.clip_high or 0.0)
        note = row.kind if clip is None else f"{row.kind}, {row.saturation:.3%} beyond"
        layer = row.name.rpartition(":")[0]
        shapes.append(Shape(row.name, edges, h.counts, clip, note, (layer,)))
    return shapes


# When the page was made, by which command, from what, and on which machine. This stands in the page
# alone: an artifact says nothing of who made it, when or where.
def provenance(manifest: Manifest, command: str | None, source: str) -> dict[str, str]:
    """The section's lines, by the words in front of each."""
    cpu = describe(this_processor())
    changed = changed_settings(manifest.settings, Settings())
    packages = ", ".join(f"{name} {version}" for name, version in versions().items())
    built = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    return {
        "page made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": command or "jq.report, from Python",
        "model": source,
        "pipeline": manifest.pipeline,
        "target": manifest.target,
        "settings": ", ".join(f"{k}={v}" for k, v in changed.items()) or "none",
        "rules": "; ".join(_rule(rule) for rule in manifest.rules) or "none",
        "processor": f"{cpu['model']} ({cpu['architecture']}), {cpu['threads']} threads",
        "instructions": ", ".join(cpu["features"]) or "none that products use",
        "compiled by": f"jaxq {manifest.tool_version} ({built})",
        "measured by": packages,
    }


def options_of(manifest: Manifest, pipeline: Pipeline) -> list[str]:
    """Options of `jaxq compile` besides the model: pipeline, target, settings, own rules."""
    options = ["-p", manifest.pipeline]
    if manifest.target != DEFAULT_TARGET:
        options += ["-t", manifest.target]
    given = changed_settings(manifest.settings, load_pipeline(pipeline.file).settings)
    for key in sorted(pipeline.explicit & given.keys()):
        options += ["--set", f"{key}={json.dumps(given[key])}"]
    known = [rule.model_dump() for rule in pipeline.file.rules]
    for rule in manifest.rules:
        if dict(rule) not in known:
            options += ["--rule", _rule(rule)]
    return options


def _rule(rule: Mapping[str, Any]) -> str:
    override = ", ".join(f"{key}={value}" for key, value in rule.get("override", {}).items())
    return f"{rule.get('pattern', '')}: {override}"
