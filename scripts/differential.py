#!/usr/bin/env python3
"""Drawn graphs through pipelines: XLA, StableHLO's interpreter and IREE must give the same bits.

    scripts/differential.py                        # 200 graphs, 20 of them through IREE
    scripts/differential.py --graphs 10000 --iree 2000 --seed 0
    scripts/differential.py --only 1234            # one of them, and its ops

Every graph is evaluated by XLA and the interpreter at level `integer`, some by IREE too; where the
pipeline loses nothing, also by NumPy's view of it: the float model's own bits. What differs is made
smaller by taking ops away from its end.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np  # noqa: E402 - found by the lines above
from suites.graphs import KINDS, Kind, drawn  # noqa: E402

import jq  # noqa: E402
from jq.errors import UserError  # noqa: E402
from jq.oracle.interpreter import interpret  # noqa: E402
from jq.oracle.xla import XlaExecutable  # noqa: E402


def kind_of(seed: int) -> Kind:
    return KINDS[seed % len(KINDS)]


def judged(seed: int, iree: bool) -> str:
    """What was found: `equal`, `refused: ...`, or how two evaluators differ."""
    kind = kind_of(seed)
    model, _, inputs = drawn(seed, kind)
    try:
        if iree:
            compiled = jq.compile(model, kind.pipeline, settings=kind.settings, cache=False)
            levels = compiled.levels
        else:
            levels = jq.rewrite(model, pipeline=kind.pipeline, settings=kind.settings)
    except UserError as error:
        return f"refused: {error}"[:160]
    run = XlaExecutable(levels["integer"], strict=True)
    for x in inputs:
        results = {"interpreter": interpret(levels["integer"], x)[0], "XLA": run(x)[0]}
        if iree:
            results["IREE"] = compiled.call_flat([x])[0]
        if kind.lossless:
            results["float"] = np.asarray(model.fn(model.params, x))
        (first, right), *others = results.items()
        for name, found in others:
            if not same(found, right):
                return f"{name} differs from {first}: {told(found, right)}"
    return "equal"


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal numbers; zeros may differ in sign, which a maximum is free to choose."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=True))


def told(found: np.ndarray, right: np.ndarray) -> str:
    if found.shape != right.shape:
        return f"{found.shape} instead of {right.shape}"
    at = np.unravel_index(np.argmax(np.abs(found - right)), right.shape)
    return f"{(found != right).sum()} of {right.size}, {found[at]!r} instead of {right[at]!r}"


def main(
    graphs: Annotated[int, typer.Option(help="To be drawn.")] = 200,
    iree: Annotated[int, typer.Option(help="Of these through IREE.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the first.")] = 0,
    only: Annotated[int | None, typer.Option(help="The seed of one graph.")] = None,
) -> None:
    if only is not None:
        print(kind_of(only), drawn(only, kind_of(only))[1])
        print(judged(only, True))
        return
    counts: Counter[str] = Counter()
    for i in range(seed, seed + graphs):
        through = (i - seed) * iree // graphs != (i - seed + 1) * iree // graphs
        try:
            found = judged(i, through)
        except Exception as error:
            found = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        counts["through IREE"] += through
        counts[
            "refused" if found.startswith("refused") else "equal" if found == "equal" else "wrong"
        ] += 1
        if found != "equal":
            print(f"{i} ({kind_of(i).pipeline}): {found}", flush=True)
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    raise typer.Exit(1 if counts["wrong"] else 0)


if __name__ == "__main__":
    typer.run(main)
