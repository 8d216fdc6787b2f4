"""Draws the pictures of the docs: the levels, and error against time from the tables of benchmarks.

scripts/benchmark.py pictures                # docs/images/*.svg
scripts/benchmark.py pictures --folder DIR
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from xml.sax.saxutils import escape

import typer

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
# Name of the file: heading of the section in the page, title, and the columns of time and error.
CHARTS = {
    "error-time-minilm": ("minilm: sentences padded to 128 tokens", "MiniLM, a padded sentence"),
    "error-time-minilm-full": ("minilm: sentences of full length", "MiniLM, a full sentence"),
    "error-time-resnet": ("resnet-224 (random weights), int8-static", "ResNet-50, 224x224"),
    "error-time-mobilenet": ("mobilenet-224 (random weights), int8-static", "MobileNet, 224x224"),
}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 300, 44, 14, 34, 44
APART = 15  # pixels between the lines of labels
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #333 }
.title { font-size: 14px; font-weight: 600 } .ours { font-weight: 600; fill: #3949ab }
.small { font-size: 11px; fill: #666 } .box { fill: #e8eaf6; stroke: #3949ab }
.plain { fill: #f5f5f5; stroke: #999 } line, path { stroke: #999; fill: none }
</style>"""


@dataclass(frozen=True)
class Point:
    name: str
    ms: float
    db: float

    @property
    def ours(self) -> bool:
        return self.name.startswith("jaxq")


def points(page: str, heading: str) -> list[Point]:
    """The rows of the first table of a section: its first number is the time."""
    section = page.split(f"### {heading}\n")[1].split("\n### ")[0]
    rows = [
        [cell.strip() for cell in line.strip("| \n").split("|")]
        for line in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[0].splitlines()
    ]
    column = next(i for i, title in enumerate(rows[0]) if title == "SQNR dB")
    column += len(rows[2]) - len(rows[0])  # a first column without a title
    return [Point(row[0].strip("* "), float(row[1]), float(row[column])) for row in rows[2:]]


def chart(title: str, found: Sequence[Point]) -> str:
    """Points by time and error; less time and more dB are better: to the left, and up."""
    longest = 1.05 * max(p.ms for p in found)
    low, high = min(p.db for p in found), max(p.db for p in found)
    low, high = low - 0.15 * (high - low) - 0.2, high + 0.15 * (high - low) + 0.2

    def x(ms: float) -> float:
        return LEFT + ms / longest * (WIDTH - LEFT - RIGHT)

    def y(db: float) -> float:
        return HEIGHT - BOTTOM - (db - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, 18, title, "title")]
    for ms in _ticks(0, longest):
        parts += [_line(x(ms), TOP, x(ms), HEIGHT - BOTTOM, 0.3)]
        parts += [_text(x(ms), HEIGHT - BOTTOM + 16, f"{ms:g}", "small", "middle")]
    for db in _ticks(low, high):
        parts += [_line(LEFT, y(db), WIDTH - RIGHT, y(db), 0.3)]
        parts += [_text(LEFT - 6, y(db) + 4, f"{db:g}", "small", "end")]
    caption = "ms of a call (less is better); upwards: SQNR in dB (more is better)"
    parts.append(_text(LEFT, HEIGHT - 8, caption, "small"))
    # Left, right and line of what a label keeps off: points, and labels.
    placed = [(x(p.ms) - 6, x(p.ms) + 6, y(p.db) + 4) for p in found]
    for p in sorted(found, key=lambda p: (not p.ours, -p.db, p.ms)):
        colour = "#3949ab" if p.ours else "#888"
        parts.append(f'<circle cx="{x(p.ms):.1f}" cy="{y(p.db):.1f}" r="5" fill="{colour}"/>')
        name = p.name.removesuffix(" (another run)")
        wide, right = 6.4 * len(name), x(p.ms) < (WIDTH + LEFT) / 2
        start = x(p.ms) + 9 if right else x(p.ms) - 9 - wide
        line = _free(placed, start, start + wide, y(p.db) + 4)
        placed.append((start, start + wide, line))
        if abs(line - y(p.db) - 4) > 3:
            edge = start - 1 if right else start + wide + 1
            parts.append(_line(x(p.ms), y(p.db), edge, line - 4, 0.7))
        anchor = "start" if right else "end"
        at = start if right else start + wide
        parts.append(_text(at, line, name, "ours" if p.ours else "", anchor))
    return _svg(WIDTH, HEIGHT, title, parts)


def _free(
    placed: Sequence[tuple[float, float, float]], left: float, right: float, y: float
) -> float:
    """The line nearest to `y` on which no label is yet."""
    steps = sorted(range(-14, 15), key=lambda n: (abs(n), n))
    for line in (y + 0.5 * APART * n for n in steps):
        inside = TOP + 8 < line < HEIGHT - BOTTOM - 2
        if inside and all(
            abs(line - other) >= APART or right < a or b < left for a, b, other in placed
        ):
            return line
    return y


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, about five of them."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


LEVELS = (
    ("JAX, Flax, Equinox, Keras, ONNX, GGUF", "your model, as it is", "plain"),
    ("float", "StableHLO: the reference for every figure", "box"),
    ("qdq", "quantize and dequantize where the plan says", "box"),
    ("integer", "i8 x i8 -> i32 in plain StableHLO", "box"),
)
ENDS = (
    ("target", ("our kernels, by IREE", "for CPUs: x86, Arm")),
    ("export", ("TOSA, TFLite, ONNX", "for NPUs and their compilers")),
)


def levels() -> str:
    """The way of a model, from above to below."""
    parts, y = [], 10
    for name, about, kind in LEVELS:
        parts += [_box(20, y, 420, 44, kind), _text(230, y + 18, name, "title", "middle")]
        parts += [_text(230, y + 35, about, "", "middle"), _arrow(230, y + 44, 230, y + 62)]
        y += 62
    parts[-1] = _arrow(180, y - 18, 125, y) + _arrow(280, y - 18, 335, y)
    for i, (name, lines) in enumerate(ENDS):
        x = 20 + 215 * i
        parts += [_box(x, y, 205, 62, "box"), _text(x + 102, y + 18, name, "title", "middle")]
        parts += [_text(x + 102, y + 36 + 16 * j, t, "", "middle") for j, t in enumerate(lines)]
    return _svg(WIDTH, y + 72, "From a model to CPU and NPU, level by level", parts)


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
    paper = f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>'
    body = "\n".join(parts)
    return f"{head}>\n<title>{escape(title)}</title>\n{STYLE}\n{paper}\n{body}\n</svg>\n"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {where} class="{kind}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, width: float) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke-width="{width}"/>'


def _box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" class="{kind}"/>'


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    head = f"M{to_x - 4} {to_y - 6}L{to_x} {to_y}L{to_x + 4} {to_y - 6}"
    return f'<path d="M{x} {y}L{to_x} {to_y - 2}{head}"/>'


def main(
    folder: Annotated[Path, typer.Option(help="Where the pictures are written.")] = ROOT
    / "docs"
    / "images",
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    drawn = {name: chart(title, points(page, where)) for name, (where, title) in CHARTS.items()}
    for name, text in {"levels": levels(), **drawn}.items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")
        print(folder / f"{name}.svg")
