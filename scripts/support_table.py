#!/usr/bin/env python
"""Support of each number format by each op, as the table of docs/reference/support.md.

Asks `jq.explain` for every format of weights on a model of three ops, with one scale a channel and
with blocks, and keeps the better answer. Writes the page anew:

    scripts/support_table.py > docs/reference/support.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jq
from jq.base.progress import silent
from jq.formats import Format

TARGET = "avx512_vnni"
OPS = {"table": "gather", "w": "dot_general", "k": "convolution"}
PIPELINES: dict[str, list[tuple[str, Any]]] = {
    "float activations": [("int8-weight-only", {})],
    "dynamic int8": [("int8-dynamic", {}), ("int4-dynamic", {})],
    "static int8": [("int8-static", {}), ("int8-static", {"weights.granularity": "per-block"})],
}
# From the worst to the best.
ANSWERS = ("no", "integer", "yes", "kernel")

HEAD = """# Formats by op

What becomes of a weight of each format in each op: with float activations, with int8 activations
whose ranges are found at run time, and with calibrated ranges. Written by
`scripts/support_table.py` from what `jaxq explain` says for the target `%s`; do not edit.

- **kernel**: a hand-written loop nest computes it on the stored bytes, in integers where
  activations are int8.
- **integer**: products of integers in StableHLO, which IREE compiles.
- **yes**: the weight is stored in the format and decoded where it is read.
- **no**: the op stays float with these activations, and `explain` gives the reason.

"""


@cache
def model() -> jq.Model:
    """A lookup, a matrix product and a convolution, whose sizes all blocks divide."""

    def fn(params: Any, x: Any, ids: Any, image: Any) -> Any:
        dims = ("NHWC", "HWIO", "NHWC")
        found = jax.lax.conv_general_dilated(
            image, params["k"], (1, 1), "SAME", dimension_numbers=dims
        )
        return params["table"][ids], x @ params["w"], found

    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    params = {"table": draw(64, 256), "w": draw(256, 64), "k": draw(3, 3, 256, 32)}
    inputs = (draw(4, 256), np.zeros(4, np.int32), draw(1, 6, 6, 256))
    return jq.Model(fn, params, inputs, calibration=[inputs])


@cache
def ranges(pipeline: str) -> jq.Ranges:
    return jq.calibrate(model(), pipeline=pipeline, target=TARGET, progress=silent)


def answers(name: str, column: str) -> dict[str, str]:
    """The best answer for each op of the model, by the name of its weight."""
    best = dict.fromkeys(OPS, "no")
    for pipeline, more in PIPELINES[column]:
        static = pipeline.startswith("int8-static")
        try:
            found = jq.explain(
                model(),
                pipeline=pipeline,
                target=TARGET,
                settings={"recovery": False, "weights.format": name, **more},
                ranges=ranges(pipeline) if static else None,
                progress=silent,
            )
        except jq.UserError:
            continue
        for op in found["ops"]:
            best[op["name"]] = max(best[op["name"]], answer(op), key=ANSWERS.index)
    return best


def answer(op: dict[str, Any]) -> str:
    if op["decision"] == "float":
        return "no"
    if op.get("kernel"):
        return "kernel"
    return "integer" if op["decision"] == "integer" else "yes"


def row(name: str) -> str:
    cells = [answers(name, "float activations")["table"]]
    for column in PIPELINES:
        found = answers(name, column)
        cells += [found["w"], found["k"]]
    return f"| `{name}` | {' | '.join(cells)} |"


def page(names: Iterable[str]) -> str:
    columns = [f"{op}, {column}" for column in PIPELINES for op in ("dot_general", "convolution")]
    lines = [f"| format | gather | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    return HEAD % TARGET + "\n".join([*lines, *map(row, names)]) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(page(sorted(Format.registry)), end="")
