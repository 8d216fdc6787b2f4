#!/usr/bin/env python3
"""Drawn graphs through pipelines: XLA, StableHLO's interpreter and IREE must give the same bits.

scripts/differential.py                        # 200 graphs, 40 of them through IREE
scripts/differential.py --graphs 10000 --iree 2000 --seed 0
scripts/differential.py --only 1234            # one of them, and its ops
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from suites import worker  # noqa: E402 - found by the lines above
from suites.differential.judge import TOGETHER, Case, fails, identify, judge  # noqa: E402
from suites.differential.modules import drawn, module_of, text_of  # noqa: E402
from suites.differential.shrink import shrunk  # noqa: E402
from suites.outcome import REFUSED, RIGHT, VERDICTS  # noqa: E402


def main(
    graphs: Annotated[int, typer.Option(help="To be drawn.")] = 200,
    iree: Annotated[int, typer.Option(help="Of these through IREE.")] = 40,
    seed: Annotated[int, typer.Option(help="Of the first.")] = 0,
    seconds: Annotated[float, typer.Option(help="Stop after so many.")] = 1e9,
    only: Annotated[int | None, typer.Option(help="The seed of one graph.")] = None,
    small: Annotated[bool, typer.Option(help="Make it smaller while it fails.")] = True,
    through: Annotated[bool, typer.Option(help="That one through IREE, too.")] = False,
) -> None:
    if only is not None:
        case = Case(only, through)
        print(case.kind, "\n", text_of([drawn(only, case.kind)]))
        (found,) = judge([case])
        print(found)
        if small and found.verdict not in (RIGHT, REFUSED):
            module = shrunk(module_of([drawn(only, case.kind)]), partial(fails, case, found))
            print(module.program.text(whole=True))
        return
    start, counts = time.time(), Counter[str]()
    first = seed // TOGETHER * TOGETHER
    # Spread over all batches, so that each kind has its share.
    every = max(1, graphs // iree) if iree else 0
    chosen = [
        Case(i, bool(every) and (i // TOGETHER) % every == 0) for i in range(first, first + graphs)
    ]
    iree_of = {identify(case)[1]: case.iree for case in chosen}
    for found in worker.run(chosen, judge, identify, together=TOGETHER):
        counts[found.verdict] += 1
        counts["through IREE"] += iree_of[found.name]
        if found.verdict != RIGHT:
            print(f"{found.verdict:8}{found.name} ({found.group}): {found.reason}", flush=True)
        if (done := sum(counts[v] for v in VERDICTS)) % TOGETHER == 0:
            print(f"{done} of {graphs}, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
        if time.time() - start > seconds:
            break
    said = ", ".join(f"{counts[v]} {v}" for v in (*VERDICTS, "through IREE"))
    print(f"{sum(counts[v] for v in VERDICTS)} graphs: {said}; {time.time() - start:.0f} s")
    raise typer.Exit(1 if sum(counts[v] for v in VERDICTS if v not in (RIGHT, REFUSED)) else 0)


if __name__ == "__main__":
    typer.run(main)
