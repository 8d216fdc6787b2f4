"""Layers with exponents from all of float32, through recovery: no channel may collapse.

    scripts/suite.py exponents                           # 100, 20 of them through IREE
    scripts/suite.py exponents --count 500 --first 1000 --iree 50

See `suites/exponents.py` for what is right. The exit code is 1 where one is wrong, or refused
without the name of a weight.
"""

from __future__ import annotations

from typing import Annotated

import typer

from suites import exponents, outcome, worker
from suites.outcome import REFUSED, RIGHT


def main(
    count: Annotated[int, typer.Option(help="Layers to be drawn.")] = 100,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    iree: Annotated[int, typer.Option(help="Of these through IREE.")] = 20,
) -> None:
    every = max(1, count // iree) if iree else 0
    seeds = range(first, first + count)
    cases = [exponents.Case(i, bool(every) and i % every == 0) for i in seeds]
    found = []
    for one in worker.run(cases, exponents.judge, exponents.identify, together=1):
        found.append(one)
        if one.verdict != RIGHT:
            print(f"{one.verdict}: {one.name}: {one.reason}", flush=True)
    print(outcome.table(found))
    raise typer.Exit(any(one.verdict not in (RIGHT, REFUSED) for one in found))
