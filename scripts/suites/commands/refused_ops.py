"""Drawn ops between convolutions on targets without floats: each refusal names what was written.

    scripts/suite.py refused_ops --count 400 --seed 1

See `suites/refused_ops.py`. The exit code is 1 where a refusal names a product of a rewrite.
"""

from __future__ import annotations

from typing import Annotated

import typer

import jq
from suites.refused_ops import drawn, wrong


def main(
    count: Annotated[int, typer.Option(help="Programs; the first ones have each op once.")] = 200,
    seed: int = 0,
) -> None:
    run = refusals = failed = 0
    for case in drawn(count, seed):
        try:
            said, bad = wrong(case)
        except jq.UserError as error:
            said, bad = 1, [f"{case}: {error}"]
        except Exception as error:
            said, bad = 0, [f"{case}: internal error: {type(error).__name__}: {error}"]
        run, refusals, failed = run + (said == 0), refusals + said, failed + len(bad)
        for line in bad:
            print(line, flush=True)
    print(f"{count} programs, {run} run whole, {refusals} refusals, {failed} wrong")
    raise typer.Exit(int(failed > 0))
