"""Attention of four shapes, masks in six spellings, padded and packed batches, in all pipelines.

    scripts/suite.py masks                     # every pipeline, float32 and bfloat16
    scripts/suite.py masks int8-dynamic float

See `suites/masked.py` for what is right. The exit code is 1 where something is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import jax.numpy as jnp
import typer

from suites import masked

ROOT = Path(__file__).resolve().parents[3]
PIPELINES = sorted(path.stem for path in (ROOT / "pipelines").glob("*.toml"))


def main(
    pipelines: Annotated[list[str] | None, typer.Argument(help="All of them by default.")] = None,
) -> None:
    if unknown := set(pipelines or ()) - set(PIPELINES):
        raise typer.BadParameter(f"no pipelines: {', '.join(sorted(unknown))}")
    wrong = 0
    for pipeline in pipelines or PIPELINES:
        for dtype in (jnp.float32, jnp.bfloat16):
            name = f"{pipeline} {dtype.dtype.name}"
            whole = masked.run(pipeline, dtype)
            wrong += told(name, whole)
            if whole.refused:  # one spelling that is refused says nothing of the others
                for spelling in masked.SPELLINGS:
                    found = masked.run(pipeline, dtype, spellings=[spelling])
                    wrong += told(f"{name}, {spelling}", found)
    raise typer.Exit(int(wrong > 0))


def told(name: str, outcome: masked.Outcome) -> int:
    """Prints an outcome; how many are wrong."""
    said = outcome.refused or f"{outcome.compared} compared, least {outcome.least:.1f} dB"
    print(f"{name}: {said}, {len(outcome.wrong)} wrong", flush=True)
    for line in outcome.wrong:
        print(f"  {line}", flush=True)
    return len(outcome.wrong)
