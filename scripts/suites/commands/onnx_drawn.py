"""Drawn ONNX graphs, quantized by ONNX Runtime with drawn options, against ONNX Runtime.

    scripts/suite.py onnx_drawn --count 200 --first 1000

Prints what is wrong with which number, by which it is drawn again; exit code 1 where something is.
A graph that ONNX Runtime cannot quantize, or whose file it cannot run, is not compared: it is
counted apart, and the reasons are printed. Weights in blocks need the extra `bench`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tests.frontends.onnx.drawn_graphs import Outcome, outcome


def main(
    count: Annotated[int, typer.Option(help="Graphs.")] = 100,
    first: Annotated[int, typer.Option(help="The number of the first.")] = 0,
) -> None:
    wrong, skipped = 0, 0
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = outcome(seed, Path(folder))
            except Exception as error:  # of any kind: the import of such a file is to work
                found = Outcome(f"{type(error).__name__}: {error}")
        wrong += bool(found.wrong)
        skipped += bool(found.not_compared)
        if found.wrong:
            print(f"{seed}: {found.wrong}", flush=True)
        if found.not_compared:
            print(f"{seed}: not compared: {found.not_compared}", flush=True)
    compared = count - skipped
    print(f"{compared - wrong} of {compared} graphs are as ONNX Runtime computes them")
    print(
        f"{skipped} of {count} drawn graphs are not compared: ONNX Runtime cannot quantize them or "
        "run its own file"
    )
    sys.exit(bool(wrong))
