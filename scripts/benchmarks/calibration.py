"""Peak memory and time of calibration and recovery, with few and with many samples.

    scripts/benchmark.py calibration [--samples 10,1000] [--methods minmax,percentile] [-o FILE]

Every figure is of a process of its own, which rewrites a small encoder with random weights by
`int8-static`: smoothing, calibration and GPTQ, all that reads the data. The samples themselves
are held in memory; a kilobyte each here.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

SEQUENCE, HIDDEN, LAYERS, VOCABULARY = 64, 128, 4, 1000


def work(method: str, samples: int, pipe: Any) -> None:
    """In the child: sends seconds and the peak of resident memory."""
    import jq
    from jq.base.system.processor import peak_rss_bytes
    from tests.support.encoder import build_random

    rng = np.random.default_rng(0)
    length = rng.integers(8, SEQUENCE + 1, (samples, 1, 1))
    mask = (np.arange(SEQUENCE) < length).astype(np.int32)
    ids = rng.integers(1, VOCABULARY, mask.shape, np.int32) * mask
    model = build_random(
        sequence=SEQUENCE, hidden=HIDDEN, layers=LAYERS, heads=4, vocabulary=VOCABULARY
    )
    start = time.perf_counter()
    data = list(zip(ids, mask, strict=True))
    jq.rewrite(
        model, pipeline="int8-static", calibration=data, settings={"calibration.method": method}
    )
    pipe.send({"seconds": time.perf_counter() - start, "peak_bytes": peak_rss_bytes()})


def measure(method: str, samples: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=work, args=(method, samples, theirs))
    child.start()
    theirs.close()
    try:
        found = ours.recv()
    except EOFError:
        child.join()
        raise SystemExit(f"the child ended with code {child.exitcode}") from None
    child.join()
    return {"method": method, "samples": samples, **found}


def main(
    samples: Annotated[str, typer.Option(help="Numbers by comma.")] = "10,1000",
    methods: Annotated[str, typer.Option(help="Calibration methods by comma.")] = (
        "minmax,average,percentile,entropy,mse,octav"
    ),
    output: Annotated[Path | None, typer.Option("-o", help="JSON file.")] = None,
) -> None:
    """Prints a table; `peak` is over that of the first number of samples."""
    rows = []
    for method in methods.split(","):
        first = 0
        for count in map(int, samples.split(",")):
            row = measure(method, count)
            first = first or row["peak_bytes"]
            row["ratio"] = row["peak_bytes"] / first
            rows.append(row)
            print(
                f"{method:12} {count:6} samples  {row['peak_bytes'] / 1e6:8.1f} MB"
                f"  x {row['ratio']:.3f}  {row['seconds']:6.1f} s",
                flush=True,
            )
    if output:
        output.write_text(json.dumps(rows, indent=1) + "\n")
