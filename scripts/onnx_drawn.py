#!/usr/bin/env python3
"""Drawn ONNX graphs, quantized by ONNX Runtime with drawn options, against ONNX Runtime.

    scripts/onnx_drawn.py --count 200 --first 1000

Prints what is wrong with which number, by which it is drawn again; exit code 1 where something is.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.onnx.drawn_graphs import problem


def main(
    count: Annotated[int, typer.Option(help="Graphs.")] = 100,
    first: Annotated[int, typer.Option(help="The number of the first.")] = 0,
) -> None:
    wrong = 0
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = problem(seed, Path(folder))
            except Exception as error:  # of any kind: the import of such a file is to work
                found = f"{type(error).__name__}: {error}"
        if found:
            wrong += 1
            print(f"{seed}: {found}", flush=True)
    print(f"{count - wrong} of {count} graphs are as ONNX Runtime computes them")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    typer.run(main)
