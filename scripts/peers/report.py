"""Figures side by side: which peers count, the tables, the plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
EQUAL_DB = 0.5  # errors that differ by less count as equal
ROUNDING_DB = 100.0  # above, a difference is float32's own


def compare(rows: Sequence[Row]) -> None:
    """Adds to each row of ours the peers that it is measured against, and the ratios of times.

    `peer`, `ratio`: the fastest peer whose error is equal or smaller; a faster answer that is
    more wrong does not count, nor one whose sums saturated. `rival`, `rival_ratio`: the fastest
    peer that quantizes in the same manner, however wrong.
    """
    for row in rows:
        peers = [r for r in rows if not r["ours"] and r["case"] == row["case"]]
        peers = [r for r in peers if r["threads"] == row["threads"] and r["kind"] != PEAK]
        if not row["ours"]:
            continue
        least = min(row["sqnr_db"], ROUNDING_DB) - EQUAL_DB
        exact = [r for r in peers if r["sqnr_db"] >= least and not saturated(r)]
        alike = [r for r in peers if r["kind"] == row["kind"]]
        for name, field, found in (("peer", "ratio", exact), ("rival", "rival_ratio", alike)):
            best = min(found, key=lambda r: r["median_ms"], default=None)
            row[name] = best["contender"] if best else None
            row[field] = row["median_ms"] / best["median_ms"] if best else None


def saturated(row: Row) -> bool:
    """True where a program's error is larger than its own on exact integers."""
    own: float = row["sqnr_db"]
    exact = min(row.get("exact_sqnr_db", own) or 0.0, ROUNDING_DB)
    return bool(exact - row["sqnr_db"] > EQUAL_DB)


def apart(rows: Sequence[Row]) -> list[str]:
    """Those that saturated, the fastest first: a wrong answer is no contender."""
    found = sorted((r for r in rows if saturated(r)), key=lambda r: r["median_ms"])
    lines = [
        f"- {r['contender']}: {r['median_ms']:.3f} ms, {r['sqnr_db']:.1f} dB; the same program on"
        f" exact integers: {r['exact_sqnr_db']:.1f} dB"
        for r in found
    ]
    return ["Saturated, and not ranked:", "", *lines, ""] if lines else []


COLUMNS = ("", "median ms", "best ms", "SQNR dB", "cosine", "worst", "ratio", "to", "same kind")
LIMITS = {"x limit": "times_limit", "best x limit": "best_times_limit"}
PEAK = "peak"


def cells(row: Row) -> list[str]:
    name = f"**{row['contender']}**" if row["ours"] else row["contender"]
    times = [f"{row['median_ms']:.3f}", f"{row['best_ms']:.3f}"]
    if row["kind"] == PEAK:
        unit = "GB/s" if row["contender"] == "memory" else "Gop/s"
        rate = f"{row['operations'] / row['best_ms'] / 1e6:.1f} {unit}"
        return [f"*peak, {name}*", *times, rate, *[""] * 5]
    errors = [f"{row['sqnr_db']:.1f}", f"{row['cosine']:.5f}", f"{row['cosine_min']:.5f}"]
    if not row["ours"]:
        return [name, *times, *errors, "", "", ""]
    ratio = f"**{row['ratio']:.2f}**" if row["ratio"] else ""
    rival = f"{row['rival_ratio']:.2f} {row['rival']}" if row["rival"] else ""
    return [name, *times, *errors, ratio, row["peer"] or "", rival]


def markdown(document: dict[str, Any]) -> str:
    """One table for each model and number of threads; products in one of their own."""
    machine = document["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    lines = [f"{machine['cpu']['model']}, {machine['instructions']}; {versions}", ""]
    rows = [r for r in document["rows"] if r["family"] != "product"]
    for case, threads in dict.fromkeys((r["case"], r["threads"]) for r in rows):
        own = [r for r in rows if (r["case"], r["threads"]) == (case, threads)]
        lines += [f"### {case}, {threads} thread{'s' * (threads > 1)}", ""]
        wrong = apart([r for r in own if r["kind"] != PEAK])
        own = [r for r in own if r["kind"] == PEAK or not saturated(r)]
        own.sort(key=lambda r: (r["kind"] == PEAK, r["median_ms"]))
        body = [cells(r) for r in own]
        if any("limit_ms" in r for r in own):
            limits = [[f"{r[k]:.2f}" if k in r else "" for k in LIMITS.values()] for r in own]
            body = [[*line, *some] for line, some in zip(body, limits, strict=True)]
            lines += table((*COLUMNS, *LIMITS), body)
        else:
            lines += table(COLUMNS, body)
        lines += wrong
    lines += products(document["rows"])
    for case, reasons in document["skipped"].items():
        lines += [f"- {case}: {name} not measured: {why}" for name, why in reasons.items()]
    return "\n".join(lines) + "\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    aligned = [
        "---" if i == 0 or c in ("to", "same kind") else "---:" for i, c in enumerate(columns)
    ]
    return [f"| {' | '.join(r)} |" for r in (columns, aligned, *rows)] + [""]


def products(rows: Sequence[Row]) -> list[str]:
    """Ratios to the fastest peer of the same kind, and their geometric mean."""
    import numpy as np

    own = [r for r in rows if r["family"] == "product" and r.get("rival_ratio")]
    lines: list[str] = []
    for name, threads in dict.fromkeys((r["contender"], r["threads"]) for r in own):
        mine = [r for r in own if (r["contender"], r["threads"]) == (name, threads)]
        ratios = np.array([r["rival_ratio"] for r in mine])
        mean, worst = float(np.exp(np.log(ratios).mean())), float(ratios.max())
        lines += [
            f"### Products, {name}, {threads} thread{'s' * (threads > 1)}",
            "",
            f"{len(mine)} shapes: geometric mean **{mean:.2f}**, worst {worst:.2f}",
            "",
        ]
        columns = ("M x K x N", "median ms", "Gop/s", "SQNR dB", "ratio", "to")
        lines += table(columns, [product_cells(r) for r in mine])
    return lines


def product_cells(row: Row) -> list[str]:
    shape = row["case"].removeprefix("gemm-")
    m, k, n = map(int, shape.split("x"))
    speed = 2 * m * k * n / row["median_ms"] / 1e6
    ratio, error = f"{row['rival_ratio']:.2f}", f"{row['sqnr_db']:.1f}"
    return [shape, f"{row['median_ms']:.4f}", f"{speed:.0f}", error, ratio, row["rival"]]


def plot(document: dict[str, Any], folder: Path) -> None:
    """Median time of every contender, one panel for each model and number of threads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [r for r in document["rows"] if r["family"] != "product" and r["kind"] != PEAK]
    panels = list(dict.fromkeys((r["case"], r["threads"]) for r in rows))
    if not panels:
        return
    sizes = [sum((r["case"], r["threads"]) == p for r in rows) for p in panels]
    figure, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(9, sum(0.25 * n + 0.7 for n in sizes)),
        height_ratios=[n + 2 for n in sizes],
        squeeze=False,
        layout="constrained",
    )
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        own = [r for r in rows if (r["case"], r["threads"]) == panel]
        own.sort(key=lambda r: r["median_ms"])
        names = [r["contender"] for r in own]
        colours = ["C0" if r["ours"] else "C7" for r in own]
        bars = axis.barh(names, [r["median_ms"] for r in own], color=colours)
        axis.bar_label(bars, [f"{r['sqnr_db']:.0f} dB" for r in own], fontsize=7, padding=2)
        axis.invert_yaxis()
        axis.tick_params(labelsize=7)
        axis.set_title(f"{panel[0]}, {panel[1]} thread(s)", fontsize=9)
    axes[-1, 0].set_xlabel("ms a call (median); SQNR against float32")
    for kind in ("svg", "png"):
        figure.savefig(folder / f"peers.{kind}", dpi=150)
