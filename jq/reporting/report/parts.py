"""Pieces of the page: tables, tiles, and histograms as inline SVG."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

WIDTH, HEIGHT = 240, 80


def number(value: float | None) -> str:
    """A number as a person reads it."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.5g}" if abs(value) < 1e5 or value % 1 else f"{value:.0f}"


def tile(value: str, label: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'


def cell(value: Any, kind: str = "") -> str:
    """A table cell; numbers carry their value for sorting."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        key = value if math.isfinite(value) else math.copysign(1e300, value)
        return f'<td class="n" data-v="{key}">{number(value)}</td>'
    text = "–" if value is None or value == "" else str(value)
    return f'<td class="{kind}">{escape(text)}</td>'


def layers_attribute(layers: Sequence[str]) -> str:
    """Says of an element which layers it is about; the page's script ties them together."""
    return f' data-layers="{escape(json.dumps(list(layers)), quote=True)}"' if layers else ""


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    sortable: bool = False,
    layers: Sequence[Sequence[str]] = (),
) -> str:
    """A table of ready cells; its heads sort it when asked to, those of numbers stand right.

    Args:
        layers: of each row, the layers that it is about.
    """
    cells = [list(row) for row in rows]
    names = [escape(h) for h in heads]
    if sortable:
        names = [f'<button type="button">{name}</button>' for name in names]
    numeric = [bool(cells) and cells[0][i].startswith('<td class="n"') for i in range(len(heads))]
    head = "".join(
        f'<th scope="col"{right * " class=n"}>{name}</th>'
        for name, right in zip(names, numeric, strict=True)
    )
    about = [layers_attribute(each) for each in layers] or [""] * len(cells)
    body = "".join(f"<tr{a}>{''.join(row)}</tr>" for a, row in zip(about, cells, strict=True))
    kind = ' class="sortable"' if sortable else ""
    return (
        f'<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def facts_list(facts: Mapping[str, str]) -> str:
    """Words and what they stand for."""
    rows = (f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items())
    return f"<dl>{''.join(rows)}</dl>"


def bars(accumulated: float, own: float, most: float) -> str:
    """Noise over signal of a layer: along the model (dark), alone (light), on a common scale."""
    scale = 100 / most if most > 0 else 0.0
    first, second = (f"{min(share * scale, 100):.1f}" for share in (accumulated, own))
    return (
        f'<td class="bars" data-v="{accumulated}"><span class="bar" style="width:{first}%"></span>'
        f'<br><span class="bar own" style="width:{second}%"></span></td>'
    )


def histogram(
    name: str,
    edges: np.ndarray,
    counts: np.ndarray,
    clip: tuple[float, float] | None,
    note: str,
    layers: Sequence[str] = (),
) -> str:
    """A card with a histogram; what lies beyond the dashed lines is cut off by the codes.

    Args:
        edges: f64[n + 1].
        counts: [n]; drawn as square roots, so that tails are seen.
    """
    low, high = float(edges[0]), float(edges[-1])
    span = high - low or 1.0
    tallest = math.sqrt(max(float(counts.max(initial=0)), 1.0))
    shapes = []
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if not count:
            continue
        x, wide = (left - low) / span * WIDTH, (right - left) / span * WIDTH
        tall = max(1.0, math.sqrt(float(count)) / tallest * (HEIGHT - 2))
        middle = (left + right) / 2
        cut = clip is not None and not clip[0] <= middle <= clip[1]
        shapes.append(
            f'<rect class="{"out" if cut else "h"}" x="{x:.2f}" y="{HEIGHT - tall:.2f}"'
            f' width="{max(wide - 0.3, 0.4):.2f}" height="{tall:.2f}"/>'
        )
    for end in clip or ():
        x = (end - low) / span * WIDTH
        if 0 <= x <= WIDTH:
            shapes.append(f'<line class="clip" x1="{x:.2f}" x2="{x:.2f}" y1="0" y2="{HEIGHT}"/>')
    shapes.append(f'<line class="axis" x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}"/>')
    label = escape(f"histogram of {name}", quote=True)
    return (
        f'<div class="card"{layers_attribute(layers)}><h3>{escape(name)}</h3>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' preserveAspectRatio="none" role="img" aria-label="{label}">{"".join(shapes)}</svg>'
        f"<p>{escape(f'{number(low)} to {number(high)}')}; {escape(note)}</p></div>"
    )


def rebinned(
    edges: np.ndarray, counts: np.ndarray, most: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring bins together, until there are at most `most`."""
    by = max(1, -(-len(counts) // most))
    pad = -len(counts) % by
    width = edges[1] - edges[0] if len(edges) > 1 else 1.0
    wide = np.concatenate([counts, np.zeros(pad)]).reshape(-1, by).sum(1)
    return edges[0] + width * by * np.arange(len(wide) + 1), wide
