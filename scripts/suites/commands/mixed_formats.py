"""Networks in which rules give ops that read one value formats of their own.

    scripts/suite.py mixed_formats                      # 100 drawn ones, 20 of them through IREE
    scripts/suite.py mixed_formats --count 500 --first 1000 --iree 100
    scripts/suite.py mixed_formats --only 35            # one of them, and what it is
    scripts/suite.py mixed_formats --networks     # 12 of Flax NNX and Linen, 6 sets of rules
    scripts/suite.py mixed_formats --networks --first 36    # those of NNX

See `suites/mixed_formats.py` for what is right. Networks run in a process of their own; the exit
code is 1 where one is wrong, or refused without the name of a layer.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from suites import mixed_formats, mixed_networks, outcome, worker
from suites.outcome import REFUSED, RIGHT


def main(
    count: Annotated[int, typer.Option(help="Drawn networks.")] = 100,
    first: Annotated[int, typer.Option(help="The first seed, or network.")] = 0,
    iree: Annotated[int, typer.Option(help="Of these through IREE.")] = 20,
    only: Annotated[int | None, typer.Option(help="The seed of one network.")] = None,
    networks: Annotated[bool, typer.Option(help="Those of Flax, all through IREE.")] = False,
) -> None:
    suite: Any = mixed_networks if networks else mixed_formats
    cases: list[Any]
    if networks:
        some = mixed_networks.CASES[first : first + count]
        cases = [mixed_networks.Case(*case, iree=True) for case in some]
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
