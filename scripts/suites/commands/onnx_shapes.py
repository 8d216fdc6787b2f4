"""Gives operators of ONNX operands of drawn shapes, and looks for calls that are not refused.

    scripts/suite.py onnx_shapes [EACH [SEED [PATTERN]]]      shapes an operand, of samples by name

Prints what is neither refused by name nor computed as ONNX Runtime does, and counts.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated

import typer

from tests.frontends.onnx.wrong_shapes import drawn, verdict


def main(
    each: Annotated[int, typer.Argument(help="Shapes an operand.")] = 1,
    seed: Annotated[int, typer.Argument(help="Of the shapes.")] = 0,
    pattern: Annotated[str, typer.Argument(help="Samples whose name has this.")] = "",
) -> None:
    counts = Counter[str]()
    for name, sample, key, array in drawn(seed, each):
        if re.search(pattern, name):
            found = verdict(sample, key, array)
            counts[found.partition(":")[0]] += 1
            if found not in ("same", "refused", "lenient"):
                print(f"{name}: {key} {array.shape}: {found}", flush=True)
    print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
    raise typer.Exit(int(bool(counts.keys() - {"same", "refused", "lenient"})))
