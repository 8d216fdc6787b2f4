"""The graph of a model as SVG, each layer in the colour of its error."""

import itertools
from collections.abc import Mapping, Sequence
from html import escape

from jq.driver.comparison.result import LayerError
from jq.ir.ops.lookup import contraction_names
from jq.reporting.report.graph import Graph, Node
from jq.reporting.report.layout import Layout, lay_out
from jq.reporting.report.parts import number

BOX, TALL, GAP = 184, 40, 14  # of a node: width, height, and what stays free beside it
RADIUS, POINT = 10, 22  # of a join; what an edge needs that passes
LETTERS = 24  # of a name that fit in a box
STEPS = (50, 40, 30, 20, 10)  # dB: from here on a layer has the next better colour
WORDS = ("50 dB and more", "40 to 50", "30 to 40", "20 to 30", "10 to 20", "below 10 dB")
SIGNS = {"add": "+", "multiply": "×", "subtract": "−", "divide": "÷", "concatenate": "‖"}


def drawing(graph: Graph, errors: Mapping[str, LayerError], kept_float: frozenset[str]) -> str:
    """The picture; `kept_float` are the layers that are not quantized."""
    widths = [BOX + GAP if node.kind != "join" else 2 * RADIUS + GAP for node in graph.nodes]
    placed = lay_out(widths, graph.edges, POINT)
    y = _heights(graph, placed)
    wide = max((x + w / 2 for x, w in zip(placed.x, widths, strict=True)), default=0.0)
    wide = max([wide, *(x + POINT for path in placed.paths for x, _ in path)]) + GAP / 2
    high = max(y, default=0.0) + TALL
    nodes = "".join(
        _node(node, x, y[row], errors.get(node.name), node.name in kept_float)
        for node, x, row in zip(graph.nodes, placed.x, placed.rows, strict=True)
    )
    return (
        f'<svg id="net" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}"'
        f' height="{high:.0f}" role="group" aria-label="graph of the model">'
        f'<g class="edges">{_edges(placed, y)}</g>{nodes}</svg>'
    )


def legend() -> str:
    """The legend of the colours."""
    keys = (f'<span><i class="key k{i}"></i>{text}</span>' for i, text in enumerate(WORDS))
    return f'<div class="legend">{"".join(keys)}<span><i class="key float"></i>float</span></div>'


def step(db: float) -> int:
    """The number of the colour of an error, from the best on."""
    return sum(not db >= limit for limit in STEPS)


def _heights(graph: Graph, placed: Layout) -> list[float]:
    """The middle of each row; a row of joins alone is low."""
    boxes = {row for node, row in zip(graph.nodes, placed.rows, strict=True) if node.kind != "join"}
    y, heights = TALL / 2 + 6.0, []
    for row in range(max(placed.rows, default=-1) + 1):
        half = TALL / 2 if row in boxes else RADIUS
        y += half if row else 0.0
        heights.append(y)
        y += half + 22
    return heights


def _edges(placed: Layout, y: Sequence[float]) -> str:
    """Every stretch from a row to the next once, whatever edges share it."""
    stretches = {(*start, *end) for path in placed.paths for start, end in itertools.pairwise(path)}
    return "".join(_stretch(x0, y[r0], x1, y[r1]) for x0, r0, x1, r1 in sorted(stretches))


def _stretch(x0: float, y0: float, x1: float, y1: float) -> str:
    middle = (y0 + y1) / 2
    bend = f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    way = f"V{y1:.1f}" if abs(x0 - x1) < 0.5 else bend
    return f'<path d="M{x0:.1f} {y0:.1f}{way}"/>'


def _node(node: Node, x: float, y: float, error: LayerError | None, is_float: bool) -> str:
    if node.kind == "join":
        sign = SIGNS.get(node.op, "•")
        return (
            f'<g class="join"><title>{escape(node.op)}</title>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}">{sign}</text></g>'
        )
    left, top = x - BOX / 2, y - TALL / 2
    lines = [_line("name", x, y - 4, label(node.name))]
    if node.kind == "layer":
        kinds = ["layer", "float"] if is_float else ["layer"]
        if error:
            figures = (("all", error.sqnr_db), ("own", error.isolated_sqnr_db))
            kinds += [f"a{step(error.sqnr_db)}", f"o{step(error.isolated_sqnr_db)}"]
            lines += [_line(f"db {k}", x, y + 12, f"{number(round(v, 1))} dB") for k, v in figures]
        else:
            lines.append(_line("db", x, y + 12, "not measured"))
        more = f' data-layer="{escape(node.name)}" tabindex="0" role="button"'
    else:
        kinds, more = [node.kind], ""
        lines.append(_line("db", x, y + 12, node.kind))
    return (
        f'<g class="node {" ".join(kinds)}"{more}><title>{escape(node.name)}</title>'
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{BOX}" height="{TALL}" rx="7"/>'
        f"{''.join(lines)}</g>"
    )


def _line(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def label(name: str) -> str:
    """The end of a name, which tells layers apart, as far as it fits in a box."""
    parts = name.split("/")
    if len(parts) > 1 and parts[-1] in {"kernel", "weight", "embedding", *contraction_names()}:
        parts.pop()
    short = "/".join(parts)
    return short if len(short) <= LETTERS else f"…{short[1 - LETTERS :]}"
