#!/usr/bin/env python3
"""This compiler beside ONNX Runtime and OpenVINO: the same weights, inputs, threads and core.

    scripts/benchmark_peers.py --models minilm-1x128,resnet-224 --threads 1 -o build/peers
    scripts/benchmark_peers.py --models gemm --rounds 10              # a sweep of products
    scripts/benchmark_peers.py --models gemm-16x1024x4096 --add       # one of them: M x K x N
    scripts/benchmark_peers.py --models my.py:model --quick

Time and error against float32 in JAX stand side by side, since a faster answer that is more wrong
does not count. All contenders of a model are alive at once and run in turns. Programs are built
first and kept in OUTPUT/work: `--build-only` makes them ahead of a quiet moment. Writes
peers.json, peers.md, peers.svg and peers.png. Needs the extra `bench`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peers import cases, ort, ours, ovino, report, roofline
from peers.build import Built, build_all
from peers.case import Case, Contender, Skipped, Source
from peers.installed import machine
from peers.measure import measure

FIELDS = {"jaxq": ours.contenders, "onnxruntime": ort.contenders, "openvino": ovino.contenders}
console = Console(stderr=True, highlight=False)


def benchmark(
    models: Annotated[str, typer.Option(help="By comma; `gemm` is a sweep.")] = "all",
    peers: Annotated[str, typer.Option(help="By comma: onnxruntime, openvino.")] = "all",
    threads: Annotated[str, typer.Option(help="Numbers by comma.")] = "1",
    rounds: Annotated[int, typer.Option(help="Turns of each contender.")] = 20,
    only: Annotated[str, typer.Option(help="Contenders whose name contains one of these.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Few rounds, a coarse sweep.")] = False,
    build_only: Annotated[bool, typer.Option("--build-only", help="Measure nothing.")] = False,
    limits: Annotated[bool, typer.Option("--roofline", help="Time over the limit.")] = False,
    add: Annotated[bool, typer.Option("--add", help="Keep other cases of peers.json.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The document on stdout.")] = False,
    output: Annotated[Path, typer.Option("-o", help="Directory.")] = Path("build/peers"),
) -> None:
    """Time and error of every contender on every model."""
    fields = ["jaxq", *(FIELDS if peers == "all" else peers.split(","))]
    rows: list[dict[str, Any]] = []
    skipped: dict[str, dict[str, str]] = {}
    peaks = roofline.programs(output / "work" / "peaks") if limits else []
    needs: dict[str, roofline.Need] = {}
    for case in chosen(models, quick):
        source = Source(case, output / "work" / case.name)
        built, failed = build(source, dict.fromkeys(fields), only)
        if limits and not build_only:
            needs[case.name] = roofline.need_of(source.model)
        for n in map(int, threads.split(",") if not build_only else ()):
            console.print(f"{case.name}: {len(built)} contenders on {n} thread(s)")
            runners, late = measure([*built, *peaks], n, 5 if quick else rounds)
            failed |= late
            rows += [row(case, r.built, n, r.figures()) for r in runners]
        if failed:
            skipped[case.name] = failed
    report.compare(rows)
    roofline.add_limits(rows, needs)
    document = {"machine": machine(), "rows": rows, "skipped": skipped}
    if add:
        document = joined(output / "peers.json", document)
    if not build_only:
        write(document, output)
    if as_json:
        print(json.dumps(document))


def chosen(models: str, quick: bool) -> list[Case]:
    names = [*cases.models(), "gemm"] if models == "all" else models.split(",")
    sweep = cases.products(*((1, 128), (256, 1024)) if quick else ())
    return [c for n in names for c in (sweep if n == "gemm" else [cases.find(n)])]


def build(source: Source, fields: dict[str, None], only: str) -> tuple[list[Built], dict[str, str]]:
    contenders: list[Contender] = []
    failed: dict[str, str] = {}
    for name in fields:
        try:
            contenders += FIELDS[name](source.case)
        except Skipped as error:
            failed[name] = str(error)
    if only:
        contenders = [c for c in contenders if any(word in c.name for word in only.split(","))]
    built, more = build_all(source, contenders, console.print)
    failed |= more
    for name, why in failed.items():
        console.print(f"{source.case.name}: without {name}: {why}")
    return built, failed


def row(case: Case, built: Built, threads: int, figures: dict[str, Any]) -> dict[str, Any]:
    return {
        "case": case.name,
        "family": case.family,
        "contender": built.contender.name,
        "kind": built.contender.kind,
        "ours": built.contender.ours,
        "threads": threads,
        **figures,
        **built.error,
        "operations": built.operations,
        "build_seconds": built.seconds,
        "bytes": built.bytes,
    }


def joined(path: Path, new: dict[str, Any]) -> dict[str, Any]:
    """Rows of an earlier run, and the new rows in place of the same case's."""
    if not path.exists():
        return new
    old = json.loads(path.read_text())
    known = {(r["case"], r["threads"]) for r in new["rows"]}
    rows = [r for r in old["rows"] if (r["case"], r["threads"]) not in known] + new["rows"]
    return {**new, "rows": rows, "skipped": old["skipped"] | new["skipped"]}


def write(document: dict[str, Any], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    (output / "peers.json").write_text(json.dumps(document, indent=1) + "\n")
    text = report.markdown(document)
    (output / "peers.md").write_text(text)
    report.plot(document, output)
    console.print(text, markup=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(benchmark)
