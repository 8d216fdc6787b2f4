"""Runs StableHLO's own cases of quantized ops through the reader.

    scripts/suite.py stablehlo_cases stablehlo/stablehlo/testdata/quantized \\
        stablehlo/stablehlo/tests/interpret/quantized_ops.mlir

Takes files and folders of a checkout of github.com/openxla/stablehlo. Prints every case that is
refused or differs; the exit code is 1 where one differs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from suites import outcome, stablehlo_cases
from suites.outcome import RIGHT, WRONG


def main(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders of them.")],
    pattern: Annotated[str, typer.Option(help="Only files whose name has this.")] = "",
) -> None:
    files = [f for p in paths for f in (sorted(p.glob("*.mlir")) if p.is_dir() else [p])]
    chosen = [c for f in files if pattern in f.name for c in stablehlo_cases.cases(f)]
    found = []
    for case in chosen:
        one = stablehlo_cases.judge(case)
        found.append(one)
        if one.verdict != RIGHT:
            print(f"{one.verdict}: {one.name}: {one.reason}", file=sys.stderr, flush=True)
    print(outcome.table(found))

    raise typer.Exit(any(one.verdict == WRONG for one in found))
