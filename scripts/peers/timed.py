"""Time beside error: every pipeline of ours on a model, and whether one of them beats `auto`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jq.driver.loading import load
from jq.reporting.benchmark.session import Job, bench
from peers.build import Built
from peers.report import table

NOISE = 0.02  # of a time
CLOSE = 0.1  # dB: the same error
AUTO = "jaxq auto"
COLUMNS = ("", "SQNR dB", "cosine", "worst", "ms", "of int8-static", "built in s")


def milliseconds(built: Sequence[Built], seconds: float) -> list[float]:
    """The median of a call on one thread, all programs in turns."""
    return [found.median_ms for found in bench([_job(b) for b in built], seconds=seconds)]


def _job(built: Built) -> Job:
    compiled = load(built.path)
    parameters = compiled.parameters if isinstance(compiled.parameters, Path) else None
    assert isinstance(compiled.vmfb, Path)
    return Job(compiled.vmfb, parameters, built.inputs)


def dominates(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """True where `a` is nowhere worse than `b`, and somewhere better, by more than noise."""
    slower, further = a["ms"] > b["ms"] * (1 + NOISE), a["sqnr_db"] < b["sqnr_db"] - CLOSE
    faster, closer = a["ms"] < b["ms"] * (1 - NOISE), a["sqnr_db"] > b["sqnr_db"] + CLOSE
    return not slower and not further and (faster or closer)


def sections(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A table of each model, the fastest first, with what is said of `auto`."""
    lines = []
    for case in dict.fromkeys(r["case"] for r in rows if "ms" in r):
        own = sorted((r for r in rows if r["case"] == case and "ms" in r), key=lambda r: r["ms"])
        whole = next((r["ms"] for r in own if r["program"] == "jaxq int8-static"), None)
        lines += [f"### {case}: time and error ({own[0]['samples']} inputs)", ""]
        lines += table(COLUMNS, [_cells(r, whole) for r in own])
        for auto in (r for r in own if r["program"] == AUTO):
            better = [r["program"] for r in own if dominates(r, auto)]
            said = f"is dominated by {', '.join(better)}" if better else "is dominated by none"
            lines += [f"{AUTO} {said} of these {len(own) - 1}.", ""]
    return lines


def _cells(row: dict[str, Any], whole: float | None) -> list[str]:
    return [
        f"**{row['program']}**" if row["program"] == AUTO else row["program"],
        f"{row['sqnr_db']:.1f}",
        f"{row['cosine']:.5f}",
        f"{row['cosine_min']:.5f}",
        f"{row['ms']:.3f}",
        f"{row['ms'] / whole:.2f}" if whole else "",
        f"{row['build_seconds']:.0f}",
    ]
