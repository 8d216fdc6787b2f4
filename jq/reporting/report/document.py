"""The page as text: one HTML file, nothing fetched; every name in it is escaped."""

from html import escape
from pathlib import Path

from jq.reporting.report import figures, sections
from jq.reporting.report.facts import Facts

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
        "outputs": figures.outputs(facts),
        "activations": figures.plots(facts.activations),
        "weights": figures.plots(facts.weights),
        "size": figures.sizes(facts),
        "latency": figures.latency(facts),
        "plan": figures.plan(facts),
        "provenance": figures.provenance(facts),
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
