"""The page as text: one HTML file, nothing fetched; every name in it is escaped."""

from html import escape
from pathlib import Path

from jq.base.tables import size
from jq.reporting.report import sections
from jq.reporting.report.facts import Facts, Shape
from jq.reporting.report.parts import cell, facts_list, histogram, rebinned, table

_FOLDER = Path(__file__).parent
SECTIONS = {
    "rules": "What to try",
    "graph": "The model, coloured by error",
    "layers": "Layers by error",
    "outputs": "Outputs",
    "activations": "Activations",
    "weights": "Weights",
    "size": "Size",
    "latency": "Latency",
    "plan": "Plan",
    "provenance": "How this page was made",
}
LINKS = {"graph": "Graph", "provenance": "Provenance"}
FILTER = (
    '<div class="filter" hidden><label>Filter <input type="search" placeholder="part of a name">'
    '</label><label>show <select><option value="">all layers</option>'
    '<option value="bad">those below 20 dB</option><option value="float">those that stay float'
    '</option></select></label><span class="count"></span></div>'
)


def render(facts: Facts) -> str:
    """The page as text."""
    manifest = facts.manifest
    links = "".join(
        f'<a href="#{key}">{LINKS.get(key, title)}</a>' for key, title in SECTIONS.items()
    )
    parts = {
        "rules": sections.rules(facts),
        "graph": sections.graph(facts),
        "layers": sections.layers(facts),
        "outputs": outputs(facts),
        "activations": plots(facts.activations),
        "weights": plots(facts.weights),
        "size": sizes(facts),
        "latency": latency(facts),
        "plan": plan(facts),
        "provenance": facts_list(facts.provenance),
    }
    body = "".join(
        f'<section id="{key}"><h2>{SECTIONS[key]}</h2>{text}</section>'
        for key, text in parts.items()
    )
    title = escape(f"{facts.name}: {manifest.pipeline} on {manifest.target}")
    style, script = (
        (_FOLDER / name).read_text(encoding="utf-8") for name in ("style.css", "script.js")
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body><header><h1>{escape(facts.name)}</h1>"
        f"<p>pipeline {escape(manifest.pipeline)}, target {escape(manifest.target)},"
        f" jaxq {escape(manifest.tool_version)}, {facts.comparison.samples} samples</p>"
        f"{sections.verdict(facts)}"
        f'<div class="tiles">{"".join(sections.tiles(facts))}</div></header>'
        f"<nav>{links}{FILTER}</nav>"
        f"{body}<script>{script}</script></body></html>\n"
    )


# Tables and plots of measured figures


def outputs(facts: Facts) -> str:
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


def plots(shapes: list[Shape]) -> str:
    if not shapes:
        return "<p>None.</p>"
    cards = (
        histogram(s.name, *rebinned(s.edges, s.counts), s.clip, s.note, s.layers) for s in shapes
    )
    note = "<p>Heights: square roots of counts. Dashed: the ends of what the codes stand for.</p>"
    return f'{note}<div class="plots">{"".join(cards)}</div>'


def sizes(facts: Facts) -> str:
    heads = ("weight", "shape", "format", "granularity", "stored bytes", "of float")
    weights = facts.audit["weights"]
    rows = (
        (
            cell(w["name"], "name"),
            cell("x".join(map(str, w["shape"]))),
            cell(w["format"]),
            cell(w["granularity"]),
            cell(w["stored_bytes"]),
            cell(w["stored_bytes"] / w["float_bytes"] if w["float_bytes"] else None),
        )
        for w in weights
    )
    readers = [facts.readers.get(w["name"], ()) for w in weights]
    return table(heads, rows, sortable=True, layers=readers)


def latency(facts: Facts) -> str:
    keys = ("median_ms", "p90_ms", "min_ms", "runs", "threads", "load_ms")
    both = [facts.latency, *([facts.float_latency] if facts.float_latency else [])]
    rows = [(cell(k.replace("_", " ")), *(cell(each[k]) for each in both)) for k in keys]
    rows.append((cell("peak memory"), *(cell(size(each["peak_rss_bytes"]), "n") for each in both)))
    heads = ("figure", "this artifact", "float")[: len(both) + 1]
    note = f"<p>{escape(facts.float_note)}</p>" if facts.float_note else ""
    return note + table(heads, rows)


def plan(facts: Facts) -> str:
    heads = ("op", "kind", "decision", "weights", "activations", "kernel", "reason")
    rows = (
        (
            cell(op.get("name"), "name"),
            *(cell(op.get(key)) for key in ("op", "decision", "weights", "activations", "kernel")),
            cell(op.get("reason") or op.get("no_kernel")),
        )
        for op in facts.manifest.ops
    )
    names = [[str(op.get("name"))] for op in facts.manifest.ops]
    return table(heads, rows, sortable=True, layers=names)
