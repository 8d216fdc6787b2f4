"""An estimate drawn as SVG: the cycles of each layer, and where its tensors lie on the chip."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

WIDE, LEFT, TOP, HIGH = 960, 90, 40, 180  # of the picture; in front of, above and of each half
COLOURS = {
    "compute": "#4878cf",
    "vector": "#6acc65",
    "sram": "#d6a21e",
    "dram": "#d65f5f",
    "channels": "#956cb4",
    "transpose": "#8c613c",
    "overhead": "#8c8c8c",
}
_TEXT = 'font-family="sans-serif" font-size="11"'


def picture(found: Mapping[str, Any]) -> str:
    """Draws the result of `jq.estimate`: layers from left to right in the order in which they run;
    above, a bar of each, below, each buffer from the layer that makes it to the last that reads."""
    high = 2 * (TOP + HIGH) + 20
    parts = [*_layers(found), *_buffers(found, 2 * TOP + HIGH), *_legend(high - 6)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{high}" {_TEXT}>'
    back = f'<rect width="{WIDE}" height="{high}" fill="#fff"/>'
    return "\n".join([head, back, *parts, "</svg>"])


def _step(found: Mapping[str, Any]) -> float:
    return (WIDE - LEFT - 10) / max(len(found["layers"]), 1)


def _layers(found: Mapping[str, Any]) -> Iterator[str]:
    most, step = max((row["cycles"] for row in found["layers"]), default=1), _step(found)
    title = f"{found['target']}, {found['pipeline']}: {found['total_ms']:.4g} ms"
    yield _text(LEFT, TOP - 14, f"{title}; cycles of each layer, coloured by what bounds it")
    yield from _scale(TOP, f"{most:.3g} cycles")
    for i, row in enumerate(found["layers"]):
        tall = HIGH * row["cycles"] / most
        told = f"{row['name']} ({row['op']}): {row['cycles']} cycles, {row['bound_by']}"
        place = (LEFT + i * step, TOP + HIGH - tall, 0.9 * step, tall)
        yield _box(place, COLOURS[row["bound_by"]], told)


def _buffers(found: Mapping[str, Any], top: int) -> Iterator[str]:
    peak, step = max(found["peak_sram_bytes"], 1), _step(found)
    yield _text(LEFT, top - 14, "activations on the chip over time")
    yield from _scale(top, f"{peak / 2**20:.3g} MiB")
    for b in found["buffers"]:
        tall = HIGH * b["bytes"] / peak
        below = HIGH * b["offset"] / peak
        wide = (b["last"] - b["first"] + 1) * step
        place = (LEFT + b["first"] * step, top + HIGH - below - tall, wide, tall)
        yield _box(place, "#9ecae1", f"{b['name']}: {b['bytes']} bytes at {b['offset']}")


def _scale(top: int, most: str) -> Iterator[str]:
    yield f'<path d="M{LEFT - 4} {top}V{top + HIGH}H{WIDE - 8}" fill="none" stroke="#333"/>'
    yield _text(LEFT - 8, top + 8, most, "end")
    yield _text(LEFT - 8, top + HIGH, "0", "end")


def _legend(y: int) -> Iterator[str]:
    for i, (name, colour) in enumerate(COLOURS.items()):
        yield _box((LEFT + 110 * i, y - 9, 10, 10), colour, name)
        yield _text(LEFT + 110 * i + 14, y, name)


def _box(place: tuple[float, float, float, float], colour: str, told: str) -> str:
    x, y, wide, tall = place
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"'
    return f'<rect {shape} fill="{colour}" stroke="#fff"><title>{escape(told)}</title></rect>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'
