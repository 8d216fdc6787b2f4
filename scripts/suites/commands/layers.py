"""Every layer of Flax (NNX, Linen), Equinox and Keras, and every function of `jax.nn`,
`jax.image`, `jax.numpy.fft` and `jax.ops`, through a pipeline, against `jax.jit` on XLA.

    scripts/suite.py layers
    scripts/suite.py layers --table keras --pipeline int8-dynamic -o build/layers.json

Needs the extra `test`. Layers that are no case are listed with the reason.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from suites import layers, outcome, worker
from suites.outcome import REFUSED, RIGHT, Outcome


def main(
    table: Annotated[list[str] | None, typer.Option(help="Tables to run.")] = None,
    match: Annotated[str, typer.Option(help="A part of the names to run.")] = "",
    pipeline: Annotated[str, typer.Option(help="The pipeline.")] = "float",
    together: Annotated[int, typer.Option(help="Cases compiled as one program.")] = 8,
    timeout: Annotated[float, typer.Option(help="Seconds for a program.")] = 600.0,
    output: Annotated[Path | None, typer.Option("-o", help="All outcomes, as JSON.")] = None,
) -> None:
    found: list[Outcome] = []
    chosen = [(m, name) for m, name in layers.names(table or layers.MODULES) if match in name]
    judge = partial(layers.judge, pipeline=pipeline)
    for one in worker.run(chosen, judge, lambda n: n, together=together, timeout=timeout):
        found.append(one)
        if one.verdict != RIGHT:
            print(f"{one.verdict:8}{one.group}: {one.name}: {one.reason}", file=sys.stderr)
    print(outcome.table(found))
    for module in table or layers.MODULES:
        for name, reason in layers.table(module).left_out.items():
            print(f"left out: {module}: {name}: {reason}")
        for name in layers.missing(module):
            print(f"missing: {module}: {name}")
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps([one.to_dict() for one in found], indent=1) + "\n")
    if any(one.verdict not in (RIGHT, REFUSED) for one in found):
        raise typer.Exit(1)
