"""Drawn graphs that pass quantized values through ops that keep codes, to products.

    scripts/suite.py quantized_graphs                       # 500
    scripts/suite.py quantized_graphs --count 50 --first 1000

See `suites/quantized_graphs.py` for what is right. Graphs run in processes of their own, many as
one program; the exit code is 1 where one is wrong.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from suites import outcome, quantized_graphs, worker
from suites.outcome import RIGHT


def main(
    count: Annotated[int, typer.Option(help="Graphs.")] = 500,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    together: Annotated[int, typer.Option(help="Graphs compiled as one program.")] = 25,
) -> None:
    seeds = range(first, first + count)
    name = lambda seed: (quantized_graphs.GROUP, str(seed))  # noqa: E731
    found = list(worker.run(seeds, quantized_graphs.judge, name, together=together))
    wrong = [one for one in found if one.verdict != RIGHT]
    for one in wrong:
        print(f"{one.verdict}: graph {one.name}: {one.reason}", file=sys.stderr)
    print(outcome.table(found))
    raise typer.Exit(1 if wrong else 0)
