"""The error page: one HTML file that needs no network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from jq.comparison.metrics import Metric
from jq.comparison.outputs import LayerError
from jq.job import AnyModel, Data
from jq.page.facts import Facts, Shape, gather
from jq.page.parts import bars, cell, histogram, number, rebinned, table, tile
from jq.progress import Progress, silent
from jq.system.files import written_whole
from jq.tables import size

_FOLDER = Path(__file__).parent
SECTIONS = {
    "outputs": "Outputs",
    "layers": "Layers by error",
    "activations": "Activations",
    "weights": "Weights",
    "size": "Size",
    "latency": "Latency",
    "plan": "Plan",
}


def report(
    model: AnyModel,
    directory: str | Path,
    path: str | Path,
    *,
    data: Data = None,
    metric: Metric | Sequence[Metric] | None = None,
    labels: Any = None,
    calibration: Data = None,
    samples: int = 16,
    seconds: float = 2.0,
    progress: Progress | None = None,
) -> Path:
    """Writes the page of an artifact: where its error is, what it takes, how it was decided.

    Args:
        data, metric, labels: as in `jq.compare`.
        samples: calls that layers and histograms are measured on.
        seconds: measuring time of the latency.
    """
    facts = gather(
        model,
        Path(directory),
        data,
        metric,
        labels,
        calibration,
        samples,
        seconds,
        progress or silent,
    )
    with written_whole(Path(path)) as temporary:
        temporary.write_text(render(facts), encoding="utf-8")
    return Path(path)


def render(facts: Facts) -> str:
    """The page as text."""
    manifest = facts.manifest
    links = "".join(f'<a href="#{key}">{title}</a>' for key, title in SECTIONS.items())
    parts = {
        "outputs": _outputs(facts),
        "layers": _layers(facts),
        "activations": _plots(facts.activations),
        "weights": _plots(facts.weights),
        "size": _sizes(facts),
        "latency": _latency(facts),
        "plan": _plan(facts),
    }
    body = "".join(
        f'<section id="{key}"><h2>{SECTIONS[key]}</h2>{text}</section>'
        for key, text in parts.items()
    )
    title = escape(f"{facts.name}: {manifest.pipeline} on {manifest.target}")
    style, script = ((_FOLDER / name).read_text() for name in ("style.css", "script.js"))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body><header><h1>{escape(facts.name)}</h1>"
        f"<p>pipeline {escape(manifest.pipeline)}, target {escape(manifest.target)},"
        f" jaxq {escape(manifest.tool_version)}, {facts.comparison.samples} samples</p>"
        f'<nav>{links}</nav><div class="tiles">{"".join(_tiles(facts))}</div></header>'
        f"{body}<script>{script}</script></body></html>\n"
    )


def _tiles(facts: Facts) -> Iterator[str]:
    first, audit = facts.comparison.outputs[0], facts.audit
    yield tile(f"{number(first.sqnr_db)} dB", "SQNR of the first output")
    yield tile(f"{first.cosine:.5f}", "cosine, mean")
    yield tile(f"{first.cosine_min:.5f}", "cosine, worst sample")
    yield tile(size(audit["module_bytes"] + audit["parameter_bytes"]), "module and parameters")
    if audit["float_parameter_bytes"]:
        yield tile(size(audit["float_parameter_bytes"]), "parameters in float")
    yield tile(f"{facts.latency['median_ms']:.3g} ms", "median latency, one thread")
    for name, both in facts.comparison.metrics.items():
        yield tile(number(both["quantized"]), f"{name} (float {number(both['float'])})")


def _outputs(facts: Facts) -> str:
    heads = ("output", "shape", "SQNR dB", "cosine", "worst", "max |error|", "equal")
    rows = (
        (
            cell(o.name, "name"),
            cell("x".join(map(str, o.shape)) or "scalar"),
            *map(cell, (o.sqnr_db, o.cosine, o.cosine_min, o.max_abs_error, o.match)),
        )
        for o in facts.comparison.outputs
    )
    return table(heads, rows)


def _layers(facts: Facts) -> str:
    layers = sorted(facts.comparison.layers, key=lambda layer: layer.sqnr_db)
    finite = [share for layer in layers for share in _shares(layer) if math.isfinite(share)]
    most = max(finite, default=1.0)
    heads = ("layer", "op", "noise", "SQNR dB", "alone dB", "cosine", "max |error|")
    rows = (
        (
            cell(layer.name, "name"),
            cell(layer.op),
            bars(*_shares(layer), most),
            *map(
                cell,
                (layer.sqnr_db, layer.isolated_sqnr_db, layer.cosine, layer.max_abs_error),
            ),
        )
        for layer in layers
    )
    note = (
        "<p>Noise over signal (amplitudes): the upper bar along the quantized model, the lower one"
        " when the layer alone is quantized. Click a head to sort.</p>"
    )
    return note + table(heads, rows, sortable=True)


def _shares(layer: LayerError) -> tuple[float, float]:
    """Noise over signal, accumulated and alone."""
    accumulated, own = (10 ** (-db / 20) for db in (layer.sqnr_db, layer.isolated_sqnr_db))
    return accumulated, own


def _plots(shapes: list[Shape]) -> str:
    if not shapes:
        return "<p>None.</p>"
    cards = (histogram(s.name, *rebinned(s.edges, s.counts), s.clip, s.note) for s in shapes)
    note = "<p>Heights: square roots of counts. Dashed: the ends of what the codes stand for.</p>"
    return f'{note}<div class="plots">{"".join(cards)}</div>'


def _sizes(facts: Facts) -> str:
    heads = ("weight", "shape", "format", "granularity", "stored bytes", "of float")
    rows = (
        (
            cell(w["name"], "name"),
            cell("x".join(map(str, w["shape"]))),
            cell(w["format"]),
            cell(w["granularity"]),
            cell(w["stored_bytes"]),
            cell(w["stored_bytes"] / w["float_bytes"] if w["float_bytes"] else None),
        )
        for w in facts.audit["weights"]
    )
    return table(heads, rows, sortable=True)


def _latency(facts: Facts) -> str:
    keys = ("median_ms", "p90_ms", "min_ms", "runs", "threads", "load_ms")
    rows = [(cell(key.replace("_", " ")), cell(facts.latency[key])) for key in keys]
    rows.append((cell("peak memory"), cell(size(facts.latency["peak_rss_bytes"]), "n")))
    return table(("figure", "value"), rows)


def _plan(facts: Facts) -> str:
    heads = ("op", "kind", "decision", "weights", "activations", "kernel", "reason")
    rows = (
        (
            cell(op.get("name"), "name"),
            *(cell(op.get(key)) for key in ("op", "decision", "weights", "activations", "kernel")),
            cell(op.get("reason") or op.get("no_kernel")),
        )
        for op in facts.manifest.ops
    )
    return table(heads, rows, sortable=True)


__all__ = ["report"]
