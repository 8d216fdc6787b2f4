#!/usr/bin/env python3
"""Networks in which rules give ops that read one value formats of their own.

    scripts/mixed_formats.py                      # 100 drawn ones, 20 of them through IREE
    scripts/mixed_formats.py --count 500 --first 1000 --iree 100
    scripts/mixed_formats.py --only 35            # one of them, and what it is
    scripts/mixed_formats.py --networks           # 12 of Flax NNX and Linen, 6 sets of rules each

See `suites/mixed_formats.py` for what is right. Networks run in a process of their own; the exit
code is 1 where one is wrong, or refused without the name of a layer.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from suites import mixed_formats, mixed_networks, outcome, worker  # noqa: E402 - found just above
from suites.outcome import REFUSED, RIGHT  # noqa: E402


def main(
    count: Annotated[int, typer.Option(help="Drawn networks.")] = 100,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    iree: Annotated[int, typer.Option(help="Of these through IREE.")] = 20,
    only: Annotated[int | None, typer.Option(help="The seed of one network.")] = None,
    networks: Annotated[bool, typer.Option(help="Those of Flax, all through IREE.")] = False,
) -> None:
    suite: Any = mixed_networks if networks else mixed_formats
    if networks:
        cases = [mixed_networks.Case(*case, iree=True) for case in mixed_networks.CASES]
    elif only is not None:
        print(mixed_formats.drawn(only))
        cases = [mixed_formats.Case(only, iree=True)]
    else:
        every = max(1, count // iree) if iree else 0
        seeds = range(first, first + count)
        cases = [mixed_formats.Case(i, bool(every) and i % every == 0) for i in seeds]
    found = []
    for one in worker.run(cases, suite.judge, suite.identify, together=1):
        found.append(one)
        if one.verdict != RIGHT:
            print(f"{one.verdict}: {one.group} {one.name}: {one.reason}", flush=True)
    print(outcome.table(found))
    raise typer.Exit(any(one.verdict not in (RIGHT, REFUSED) for one in found))


if __name__ == "__main__":
    typer.run(main)
