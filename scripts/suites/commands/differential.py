"""Drawn graphs through pipelines: NumPy, XLA, StableHLO's interpreter and IREE must give the same
bits. Drawn networks op by op, as softmax's last bits are nobody's.
    scripts/suite.py differential                        # 200 graphs, 40 of them through IREE
    scripts/suite.py differential --graphs 10000 --iree 2000 --seed 0
    scripts/suite.py differential --only 1234            # one of them, and its ops
    scripts/suite.py differential --networks 100 --iree 20   # networks instead of graphs
    scripts/suite.py differential --pairs 10       # networks, each in four ways
    scripts/suite.py differential --references 300 # float programs, by XLA and NumPy
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated

import typer

from suites import worker
from suites.differential import networks as nets
from suites.differential import pairs as couples
from suites.differential import references as floats
from suites.differential.judge import TOGETHER, Case, fails, identify, judge
from suites.differential.modules import drawn, module_of, text_of
from suites.differential.shrink import shrunk
from suites.outcome import REFUSED, RIGHT, VERDICTS, Outcome


def main(
    graphs: Annotated[int, typer.Option(help="To be drawn.")] = 200,
    iree: Annotated[int, typer.Option(help="Of these through IREE.")] = 40,
    seed: Annotated[int, typer.Option(help="Of the first.")] = 0,
    seconds: Annotated[float, typer.Option(help="Stop after so many.")] = 1e9,
    only: Annotated[int | None, typer.Option(help="The seed of one graph.")] = None,
    small: Annotated[bool, typer.Option(help="Make it smaller while it fails.")] = True,
    through: Annotated[bool, typer.Option(help="That one through IREE, too.")] = False,
    networks: Annotated[int, typer.Option(help="Networks to be drawn, and no graphs.")] = 0,
    pairs: Annotated[int, typer.Option(help="Networks with others of the same function.")] = 0,
    references: Annotated[int, typer.Option(help="Float programs, as references.")] = 0,
) -> None:
    if pairs:
        both = [couples.Case(n, i) for i in range(seed, seed + pairs) for n in couples.PAIRS]
        names = {couples.identify(case)[1]: False for case in both}
        report(worker.run(both, couples.judge, couples.identify, together=1), names, 4, seconds)
    if references:
        drawn_floats = [floats.Case(i) for i in range(seed, seed + references)]
        names = {str(case.seed): False for case in drawn_floats}
        found = worker.run(drawn_floats, floats.judge, floats.identify, together=1)
        report(found, names, 50, seconds)
    if networks:
        every = max(1, networks // iree) if iree else 0
        run = [nets.Case(i, bool(every) and i % every == 0) for i in range(seed, seed + networks)]
        through_iree = {str(case.seed): case.iree for case in run}
        report(worker.run(run, nets.judge, nets.identify, together=1), through_iree, 10, seconds)
    if only is not None:
        case = Case(only, through)
        print(case.kind, "\n", text_of([drawn(only, case.kind)]))
        (only_one,) = judge([case])
        print(only_one)
        if small and only_one and only_one.verdict not in (RIGHT, REFUSED):
            module = shrunk(module_of([drawn(only, case.kind)]), partial(fails, case, only_one))
            print(module.program.text(whole=True))
        return
    first = seed // TOGETHER * TOGETHER
    # Spread over all batches, so that each kind has its share.
    every = max(1, graphs // iree) if iree else 0
    chosen = [
        Case(i, bool(every) and (i // TOGETHER) % every == 0) for i in range(first, first + graphs)
    ]
    through_iree = {identify(case)[1]: case.iree for case in chosen}
    found = worker.run(chosen, judge, identify, together=TOGETHER)
    report(found, through_iree, TOGETHER, seconds)


def report(
    found: Iterable[Outcome], through_iree: Mapping[str, bool], step: int, seconds: float
) -> None:
    """Prints what is not right, and the sum; ends with the exit code."""
    start, counts, total = time.time(), Counter[str](), len(through_iree)
    for one in found:
        counts[one.verdict] += 1
        counts["through IREE"] += through_iree[one.name]
        if one.verdict != RIGHT:
            print(f"{one.verdict:8}{one.name} ({one.group}): {one.reason}", flush=True)
        if (done := sum(counts[v] for v in VERDICTS)) % step == 0:
            print(f"{done} of {total}, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
        if time.time() - start > seconds:
            break
    said = ", ".join(f"{counts[v]} {v}" for v in (*VERDICTS, "through IREE"))
    print(f"{sum(counts[v] for v in VERDICTS)}: {said}; {time.time() - start:.0f} s")
    raise typer.Exit(1 if sum(counts[v] for v in VERDICTS if v not in (RIGHT, REFUSED)) else 0)
