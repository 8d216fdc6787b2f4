"""Every case that JAX has of its primitives, through a pipeline, against `jax.jit` on XLA.

    scripts/suite.py harnesses --sample 2
    scripts/suite.py harnesses --group scatter --group sort -o build/harnesses.json
    scripts/suite.py harnesses --pipeline int8-dynamic     # arguments as weights

A case is right, or refused by a `UserError`; anything else is listed, and the exit code is 1.
Cases run in processes of their own: one that crashes or hangs takes no other with it.
`suites/close.py` says when results are equal. Needs the extra `test`.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from suites import outcome, primitives, refusals, worker
from suites.outcome import REFUSED, RIGHT, SKIPPED, Outcome
from suites.primitives import ALL


def main(
    sample: Annotated[int | None, typer.Option(help="Cases of each group; all by default.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Groups to run.")] = None,
    match: Annotated[str, typer.Option(help="A part of the names to run.")] = "",
    pipeline: Annotated[
        str, typer.Option(help="Arguments are weights, but for `float`.")
    ] = "float",
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    together: Annotated[int, typer.Option(help="Cases compiled as one program.")] = 16,
    timeout: Annotated[float, typer.Option(help="Seconds for a program.")] = 300.0,
    output: Annotated[Path | None, typer.Option("-o", help="All outcomes, as JSON.")] = None,
    refused: Annotated[
        Path | None, typer.Option("--refusals", help="Write the page of refusals.")
    ] = None,
) -> None:
    chosen = [i for i in primitives.chosen(sample, group or ()) if match in ALL[i].name]
    start = time.time()
    found: list[Outcome] = []
    for one in worker.run(
        chosen,
        partial(primitives.judge, pipeline=pipeline),
        lambda i: (ALL[i].group_name, ALL[i].name),
        together=together,
        jobs=jobs,
        timeout=timeout,
    ):
        found.append(one)
        if one.verdict not in (RIGHT, SKIPPED):
            print(f"{one.verdict:8}{one.group}: {one.name}: {one.reason}", file=sys.stderr)
    print(outcome.table(found))
    for verdict, reason, count, example in outcome.reasons(found):
        print(f"{count:5} {verdict}: {reason}\n      {example}")
    print(f"{time.time() - start:.0f} s", file=sys.stderr)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps([one.to_dict() for one in found], indent=1) + "\n")
    if refused:
        refused.write_text(refusals.page(found))
    if any(one.verdict not in (RIGHT, REFUSED, SKIPPED) for one in found):
        raise typer.Exit(1)
