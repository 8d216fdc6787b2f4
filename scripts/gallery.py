#!/usr/bin/env python3
"""Real models from packages on PyPI: size, time and error beside ONNX Runtime and OpenVINO.

    scripts/gallery.py                               # all of them
    scripts/gallery.py magika --files 5000           # file types; labels are files of this machine
    scripts/gallery.py rapidocr-detection --build-only
    scripts/gallery.py magika --only jaxq,Runtime    # contenders whose name contains one of these

magika (file types from bytes) and rapidocr (detection, recognition and orientation of lines) come
as ONNX files; their packages are downloaded and unpacked, never imported. The error is that of the
worst output against the float file in ONNX Runtime without graph optimization; files for
calibration and evaluation are disjoint. Programs are kept in OUTPUT/work. Needs the extra `bench`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import benchmark_peers
from peers import gallery, report
from peers.case import Source
from peers.installed import machine
from peers.measure import measure


def show(
    names: Annotated[list[str] | None, typer.Argument(help=", ".join(gallery.NAMES))] = None,
    peers: Annotated[str, typer.Option(help="By comma: onnxruntime, openvino.")] = "all",
    files: Annotated[
        int, typer.Option(help="Labelled files of magika, a tenth to calibrate.")
    ] = 5000,
    images: Annotated[int, typer.Option(help="Drawn images, to calibrate and to evaluate.")] = 64,
    rounds: Annotated[int, typer.Option(help="Turns of each contender.")] = 10,
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    only: Annotated[str, typer.Option(help="Contenders whose name contains one of these.")] = "",
    build_only: Annotated[bool, typer.Option("--build-only", help="Errors, no times.")] = False,
    output: Annotated[Path, typer.Option("-o", help="Directory.")] = Path("build/gallery"),
) -> None:
    """Size, time and error of every contender on every model."""
    known = benchmark_peers.FIELDS
    fields = dict.fromkeys(known if peers == "all" else ["jaxq", *peers.split(",")])
    rows: list[dict[str, Any]] = []
    skipped: dict[str, dict[str, str]] = {}
    for name in names or gallery.NAMES:
        counts = (files // 10, files - files // 10) if name == "magika" else (images, images)
        case = gallery.find(name, output / "packages", *counts)
        source = Source(case, output / "work" / name, samples=counts[1])
        built, failed = benchmark_peers.build(source, fields, only)
        found: list[tuple[Any, dict[str, Any]]] = [(b, {}) for b in built]
        if not build_only:
            runners, late = measure(built, threads, rounds)
            failed |= late
            found = [(r.built, r.figures()) for r in runners]
        rows += [benchmark_peers.row(case, b, threads, times) for b, times in found]
        skipped[name] = failed
    if not build_only:
        report.compare(rows)
    document = {"machine": machine(), "rows": rows, "skipped": skipped}
    output.mkdir(parents=True, exist_ok=True)
    (output / "gallery.json").write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(table(rows)))


def table(rows: list[dict[str, Any]]) -> list[str]:
    columns = ["model", "contender", "ms", "MB", "SQNR dB", "error", "top-1", "of float"]
    return report.table(columns, [cells(r) for r in rows])


def cells(row: dict[str, Any]) -> list[str]:
    """`error` is relative: the root of noise over signal."""
    rate = [f"{100 * row[k]:.2f}" if k in row else "" for k in ("accuracy", "float_accuracy")]
    time = f"{row['median_ms']:.3f}" if "median_ms" in row else ""
    error = 10 ** (-row["sqnr_db"] / 20)
    size = f"{row['bytes'] / 1e6:.2f}"
    return [
        row["case"],
        row["contender"],
        time,
        size,
        f"{row['sqnr_db']:.1f}",
        f"{error:.1e}",
        *rate,
    ]


if __name__ == "__main__":
    typer.run(show)
