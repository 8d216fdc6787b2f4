"""Every sampler of `jax.random` in three shapes, drawn from keys that are inputs of the program.

    scripts/suite.py samplers                  # all
    scripts/suite.py samplers gamma poisson    # those, and no others

See `suites/samplers.py` for what is right. The exit code is 1 where something is wrong.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from suites import samplers


def main(
    names: Annotated[list[str] | None, typer.Argument(help="All of them by default.")] = None,
) -> None:
    wrong = 0
    for name, shape in samplers.cases():
        if names and name not in names:
            continue
        began = time.perf_counter()
        outcome = samplers.run(name, shape)
        wrong += not outcome.right
        said = outcome.said or f"{outcome.places:.1f} last places"
        seconds = f"{time.perf_counter() - began:.1f} s"
        print("ok" if outcome.right else "WRONG", name, shape, said, seconds, sep="  ", flush=True)
    print(f"{wrong} wrong")
    raise typer.Exit(int(wrong > 0))
