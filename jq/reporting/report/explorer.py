"""The graph and its errors as files of Model Explorer, Google's viewer of model graphs.

`graph.json` is the graph of the page; every other file is node data on it: open the first, add one
of the others. Colours are those of the page."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jq.driver.comparison.result import LayerError
from jq.reporting.report.graph import STEPS, Graph

GRAPH = "main"
COLOURS = ("#ef7d78", "#f9ae84", "#fdd9a0", "#fdf3bf", "#e4f2c9", "#d3f0dc")  # the worst first
FIGURES = {
    "sqnr_db": "SQNR in dB, along the quantized model",
    "isolated_sqnr_db": "SQNR in dB, of the layer alone",
    "cosine": "cosine, along the quantized model",
}
BEST = 1e3  # dB that stand for infinity, which JSON has no number for


def write(
    folder: Path,
    graph: Graph,
    errors: Mapping[str, LayerError],
    plan: Mapping[str, Mapping[str, Any]],
) -> None:
    """Writes the files into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = {"graph": graph_document(graph, plan)}
    documents |= {figure: node_data(graph, errors, figure) for figure in FIGURES}
    for name, document in documents.items():
        text = json.dumps(document, indent=1, allow_nan=False)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


def graph_document(graph: Graph, plan: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The graph; the plan's row of each layer becomes its attributes."""
    nodes = []
    for index, node in enumerate(graph.nodes):
        scope, _, end = node.name.rpartition("/") if node.kind == "layer" else ("", "", node.name)
        facts = {"name": node.name, "kind": node.kind, **plan.get(node.name, {})}
        edges = enumerate(graph.inputs_of(index))
        nodes.append(
            {
                "id": str(index),
                "label": end,
                "namespace": scope,
                "incomingEdges": [
                    {"sourceNodeId": str(a), "sourceNodeOutputId": "0", "targetNodeInputId": str(i)}
                    for i, a in edges
                ],
                "attrs": [{"key": k, "value": str(v)} for k, v in facts.items() if v],
            }
        )
    return {"label": "jaxq", "graphs": [{"id": GRAPH, "nodes": nodes}]}


def node_data(graph: Graph, errors: Mapping[str, LayerError], figure: str) -> dict[str, Any]:
    """One figure of the layers, by the ids of the graph."""
    measured = {
        str(i): getattr(errors[node.name], figure)
        for i, node in enumerate(graph.nodes)
        if node.kind == "layer" and node.name in errors
    }
    finite = {i: v if math.isfinite(v) else math.copysign(BEST, v) for i, v in measured.items()}
    results = {i: {"value": value} for i, value in finite.items()}
    data: dict[str, Any] = {"name": FIGURES[figure], "results": results}
    if figure.endswith("db"):
        limits = zip((*reversed(STEPS), BEST), COLOURS, strict=True)
        data["thresholds"] = [{"value": value, "bgColor": colour} for value, colour in limits]
    return {GRAPH: data}
