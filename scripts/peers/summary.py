"""The board on one page: a row for each network, ours beside the best of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peers.case import STATIC, WEIGHTS4
from peers.report import table

START, END = "<!-- board -->", "<!-- /board -->"
COLUMNS = (
    *("", "float", "**jaxq `int8-static`**", "best other int8"),
    *("**jaxq `int4-weight-only`**", "best other int4 weights"),
)
Row = Mapping[str, Any]
FLOAT_DB = 100.0  # above it, errors are those of float32 in another order


def summary(rows: Sequence[Row]) -> list[str]:
    """A table of scores with cosines behind them; of networks where another tool ran, too."""
    lines = []
    for case in dict.fromkeys(r["case"] for r in rows):
        own = [r for r in rows if r["case"] == case]
        if all(r["ours"] for r in own):
            continue
        cells = [_best(own, kind, ours) for kind in (STATIC, WEIGHTS4) for ours in (True, False)]
        lines.append([case, f"{own[0]['float_accuracy']:.3f}", *cells])
    return table(COLUMNS, lines)


def _best(rows: Sequence[Row], kind: str, ours: bool) -> str:
    """The best score of a kind of program, of equal ones the closest; whose it is, of others. A
    program as exact as float32 has quantized nothing, and does not count."""
    found = [r for r in rows if r["kind"] == kind and r["ours"] == ours]
    found = [r for r in found if r["sqnr_db"] < FLOAT_DB]
    if not found:
        return ""
    best = max(found, key=lambda r: (r["accuracy"], r["cosine"]))
    name = "" if ours else f" ({_tool(best['program'])})"
    return f"{best['accuracy']:.3f}, {best['cosine']:.4f}{name}"


def _tool(program: str) -> str:
    return "NNCF" if program.startswith("OpenVINO") else "ONNX Runtime"


def write(page: Path, document: Mapping[str, Any]) -> None:
    """Writes the table anew between the two marks of a page.

    Raises:
        SystemExit: it has no such marks.
    """
    text = page.read_text()
    if not 0 <= text.find(START) < text.find(END):
        raise SystemExit(f"{page} has no lines {START} and {END}")
    before, after = text.split(START)[0], text.split(END)[1]
    lines = "\n".join(summary(document["rows"])).strip()
    page.write_text(f"{before}{START}\n{lines}\n{END}{after}")
