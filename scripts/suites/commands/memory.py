"""JAX's cases of indexing (or others) in memory that is watched: no byte is touched that is not the
program's.

    scripts/suite.py memory --sample 4
    scripts/suite.py memory --by valgrind --sample 1
    scripts/suite.py memory --group sort --pipeline int8-weight-only   # arguments as weights

`guard` puts each input, constant and result between pages that may not be touched, and says
`crashed` for the case that touches one. `valgrind` looks at every access; Debian has it. Both use
the target `x86-64-v3`. Results are compared as by `scripts/suite.py harnesses`.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from suites import outcome, primitives, watched, worker
from suites.outcome import REFUSED, RIGHT, SKIPPED
from suites.primitives import ALL


def main(
    by: Annotated[list[str] | None, typer.Option(help="guard (the default), valgrind.")] = None,
    sample: Annotated[int, typer.Option(help="Cases of each group.")] = 4,
    group: Annotated[list[str] | None, typer.Option(help="Groups to run.")] = None,
    pipeline: Annotated[
        str, typer.Option(help="Arguments are weights, but for `float`.")
    ] = "float",
    together: Annotated[int, typer.Option(help="Cases compiled as one program.")] = 16,
    timeout: Annotated[float, typer.Option(help="Seconds for a program.")] = 300.0,
) -> None:
    ways = by or ["guard"]
    if not set(ways) <= set(watched.WAYS):
        raise typer.BadParameter(f"--by is one of {', '.join(watched.WAYS)}")
    found = []
    for one in worker.run(
        primitives.chosen(sample, group or watched.INDEXING),
        partial(watched.judge, pipeline=pipeline, by=ways),
        lambda i: (ALL[i].group_name, ALL[i].name),
        together=together,
        timeout=timeout,
    ):
        found.append(one)
        if one.verdict not in (RIGHT, SKIPPED):
            print(f"{one.verdict:8}{one.group}: {one.name}: {one.reason}", file=sys.stderr)
    print(outcome.table(found))
    if any(one.verdict not in (RIGHT, REFUSED, SKIPPED) for one in found):
        raise typer.Exit(1)
