#!/usr/bin/env python3
"""Accuracy of this compiler's pipelines beside ONNX Runtime, NNCF with OpenVINO, and AutoRound.

    scripts/benchmark_accuracy.py -o build/accuracy
    scripts/benchmark_accuracy.py --models minilm --only int8-static,NNCF --sentences 64
    scripts/benchmark_accuracy.py --own --models minilm --pipelines "int8-dynamic recovery=gptq"

    scripts/benchmark_accuracy.py --own --models digits_cnn --pipelines all --time 2
    scripts/benchmark_accuracy.py --board -o build/board        # real networks, by what they do
    scripts/benchmark_accuracy.py --board --models silero-vad,captcha --own --sentences 64
    scripts/benchmark_accuracy.py -o build/board --readme README.md   # the table of what was found

AutoRound runs where `AUTOROUND_PYTHON` names a Python that has it (`peers/autoround.py`):

    scripts/benchmark_accuracy.py --models minilm --only AutoRound

Every row is a program that was built from the same weights and, where it is calibrated, the same
calibration data; it runs on the evaluation set and is compared with float32 in JAX. Programs and
errors are kept in OUTPUT/work: a run that was interrupted goes on where it was. With `--time` ours
are timed, too, and said to be beaten or not. Writes
accuracy.json, accuracy.md, accuracy.svg and accuracy.png. Needs the extra `bench`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peers import autoround, ort, ours, ovino, summary, timed
from peers import board as boards
from peers.build import Built, build_all
from peers.case import (
    DYNAMIC,
    FEWER,
    FLOAT,
    STATIC,
    WEIGHTS4,
    WEIGHTS8,
    Case,
    Contender,
    Skipped,
    Source,
)
from peers.installed import machine
from peers.report import table

from jq.base.system.folders import data_names
from jq.models.zoo.digits_cnn import TEST
from jq.models.zoo.digits_cnn import build as build_digits
from jq.models.zoo.minilm import build as build_minilm
from jq.models.zoo.mobilenet import build as build_mobilenet
from jq.models.zoo.resnet import build as build_resnet

PEERS: dict[str, Callable[[Case], list[Contender]]] = {
    "onnxruntime": ort.contenders,
    "openvino": ovino.contenders,
    "autoround": autoround.contenders,
}
TITLES = {
    STATIC: "int8 activations, calibrated ranges",
    DYNAMIC: "int8 weights and activations, dynamic ranges",
    WEIGHTS4: "weights of 4 bits in blocks",
}
CASES = (
    Case(
        "minilm",
        build_minilm,
        ("int8-static", "int8-dynamic", "int4-weight-only", "int4-dynamic"),
        "transformer",
        frozenset({*TITLES, FEWER}),
    ),
    Case(
        "digits_cnn",
        build_digits,
        ("int8-static", "int8-static-integer-only", "int8-static weights.format=int4"),
        "convolution",
        frozenset({STATIC}),
    ),
)
# Weights are random: there is no accuracy to speak of, only what pipelines have beside each other.
RANDOM = (
    Case("mobilenet", build_mobilenet, ("int8-static", "auto"), "convolution", frozenset()),
    Case("resnet", build_resnet, ("int8-static", "auto"), "convolution", frozenset()),
)
console = Console(stderr=True, highlight=False)


def benchmark(
    models: Annotated[
        str, typer.Option(help="By comma: minilm, digits_cnn (`all`); mobilenet, resnet.")
    ] = "all",
    pipelines: Annotated[
        str,
        typer.Option(
            help="Ours, by semicolon, with settings: `int8-dynamic recovery=false`; or `all`."
        ),
    ] = "",
    only: Annotated[str, typer.Option(help="Programs whose name contains one of these.")] = "",
    sentences: Annotated[int, typer.Option(help="Inputs of minilm's evaluation set.")] = 256,
    calibration: Annotated[int, typer.Option(help="Calibration sentences of minilm.")] = 128,
    time: Annotated[float, typer.Option(help="Seconds to time each of ours for; 0: none.")] = 0.0,
    own: Annotated[bool, typer.Option("--own", help="Without the peers.")] = False,
    board: Annotated[
        bool, typer.Option("--board", help="Real networks, by scores of what they are for.")
    ] = False,
    readme: Annotated[
        Path | None, typer.Option(help="Measure nothing: write the table of this page anew.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The document on stdout.")] = False,
    output: Annotated[Path, typer.Option("-o", help="Directory.")] = Path("build/accuracy"),
) -> None:
    """The error of every program."""
    if readme:
        summary.write(readme, json.loads((output / "accuracy.json").read_text()))
        return
    document: dict[str, Any] = {"machine": machine(), "rows": [], "skipped": {}}
    chosen = [] if models == "all" else models.split(",")
    asked = chosen or [c.name for c in CASES]
    own_cases = [c for c in (*CASES, *RANDOM) if c.name in asked]
    where = output / "packages"
    skipped, names = document["skipped"], chosen or boards.NAMES
    real = boards.found(names, where, calibration, sentences, skipped)
    for case in real if board else own_cases:
        if pipelines:
            asked_for = data_names("pipelines") if pipelines == "all" else pipelines.split(";")
            case = replace(case, pipelines=tuple(p.strip() for p in asked_for))
        if case.name == "minilm" and not board:
            case = replace(case, build=partial(build_minilm, calibration=calibration))
        # All images: there are few of them, and accuracy is a share of the whole set.
        samples = TEST if case.name == "digits_cnn" else sentences
        work = case.name if case.name == "digits_cnn" else f"{case.name}-{calibration}"
        source = Source(case, output / "work" / work, samples)
        found, left_out = contenders(case, own)
        mine: list[Built] = []
        for contender in found:
            if only and not any(word in contender.name for word in only.split(",")):
                continue
            built, failed = build_all(source, [contender], console.print)
            document["rows"] += [row(case, samples, b) for b in built]
            mine += [b for b in built if contender.ours]
            left_out |= failed
        if time and mine:
            ms = timed.milliseconds(mine, time)
            known = {b.contender.name: t for b, t in zip(mine, ms, strict=True)}
            own_rows = (r for r in document["rows"] if r["case"] == case.name and r["ours"])
            for r in own_rows:
                r["ms"] = known[r["program"]]
        skipped[case.name] = left_out
        write(document, output, board)
    if as_json:
        print(json.dumps(document))


def contenders(case: Case, own: bool) -> tuple[list[Contender], dict[str, str]]:
    """Ours, and those of the peers' that compute in float32 what they do not quantize."""
    found, skipped = [c for c in ours.contenders(case) if c.ours], {}
    for name, peers in PEERS.items() if not own else ():
        try:
            found += [
                c
                for c in peers(case)
                if c.kind in case.kinds and "bf16" not in c.name and "from ORT" not in c.name
            ]
        except Skipped as error:
            skipped[name] = str(error)
    return found, skipped


def row(case: Case, samples: int, built: Built) -> dict[str, Any]:
    return {
        "case": case.name,
        "kind": built.contender.kind,
        "program": built.contender.name,
        "ours": built.contender.ours,
        "samples": samples,
        **built.error,
        "build_seconds": built.seconds,
        "bytes": built.bytes,
    }


def write(document: dict[str, Any], output: Path, board: bool) -> None:
    output.mkdir(parents=True, exist_ok=True)
    (output / "accuracy.json").write_text(json.dumps(document, indent=1) + "\n")
    text = markdown(document, board)
    (output / "accuracy.md").write_text(text)
    if not board:
        plot(document["rows"], output)
    console.print(text, markup=False, soft_wrap=True)


COLUMNS = ("", "cosine", "worst", "SQNR dB", "accuracy (float32)", "MB", "built in s")


def markdown(document: dict[str, Any], board: bool) -> str:
    """A table of each model and kind, the smallest error first."""
    machine = document["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    lines = [f"{machine['cpu']['model']}; {versions}", ""]
    lines += timed.sections(document["rows"])
    lines += boards.sections(document["rows"]) if board else []
    for title, rows in sections(document["rows"] if not board else ()).items():
        lines += [f"### {title} ({rows[0]['samples']} inputs)", ""]
        lines += table(COLUMNS, [cells(r) for r in rows])
    for name, reasons in document["skipped"].items():
        lines += [f"- {name}: {what} not measured: {why}" for what, why in reasons.items()]
    return "\n".join(lines) + "\n"


def sections(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by title."""
    titles = {
        **TITLES,
        FLOAT: "float",
        WEIGHTS8: "weights of 8 bits",
        FEWER: "weights in 2 or 3 bits",
    }
    found: dict[str, list[dict[str, Any]]] = {}
    for r in sorted(rows, key=lambda r: -r["cosine"]):
        found.setdefault(f"{r['case']}: {titles[r['kind']]}", []).append(r)
    return dict(sorted(found.items()))


def cells(row: dict[str, Any]) -> list[str]:
    accuracy = f"{row['accuracy']:.4f} ({row['float_accuracy']:.4f})" if "accuracy" in row else ""
    return [
        f"**{row['program']}**" if row["ours"] else row["program"],
        f"{row['cosine']:.5f}",
        f"{row['cosine_min']:.5f}",
        f"{row['sqnr_db']:.1f}",
        accuracy,
        f"{row['bytes'] / 1e6:.1f}",
        f"{row['build_seconds']:.0f}",
    ]


def plot(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """1 - cosine of every program, mean and worst, one panel a group."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = sections(rows)
    if not groups:
        return
    figure, axes = pyplot.subplots(
        len(groups),
        1,
        figsize=(9, sum(0.4 * len(g) + 0.7 for g in groups.values())),
        height_ratios=[len(g) + 1 for g in groups.values()],
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    for axis, (title, group) in zip(axes[:, 0], groups.items(), strict=True):
        names = [r["program"] for r in group]
        colours = ["C0" if r["ours"] else "C7" for r in group]
        for key, marker in (("cosine", "o"), ("cosine_min", "|")):
            values = [max(1 - r[key], 1e-7) for r in group]
            axis.scatter(values, names, c=colours, marker=marker, s=60)
        axis.set_xscale("log")
        axis.invert_yaxis()
        axis.margins(y=0.3)
        axis.grid(axis="x", alpha=0.3)
        axis.tick_params(labelsize=7)
        axis.set_title(title, fontsize=9)
    axes[-1, 0].set_xlabel("1 - cosine with float32: mean (dot) and worst (bar); less is better")
    for kind in ("svg", "png"):
        figure.savefig(folder / f"accuracy.{kind}", dpi=150)
    pyplot.close(figure)


if __name__ == "__main__":
    typer.run(benchmark)
