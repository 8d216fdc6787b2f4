"""Float ONNX files as we compile them (`float`), by ONNX Runtime's time, on one core, worst first.

    scripts/benchmark.py float_files packages/*/*.onnx --size batch=1 --size width=320

Both run on the calling thread with all optimizations, and calls take turns; ours are bound to their
inputs and results, which makes the other one slower. A time is that of the processor, which others
on the machine hardly change. Inputs are drawn: normal floats, integers below `--integers`; lengths
of sequences are best given (`--value lengths=64`). A line a file: the median of a call of each, the
median of the ratios of turns that follow one another, and the error of the worst output by its
largest value. At the end the median of all files. Artifacts are kept in DIR and are not made again.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from peers.programs import OnnxRuntime
from peers.turns import Call, turns

import jq
from jq.artifact.load import load_artifact
from jq.base.system.processor import this_processor
from jq.frontends.onnx.describe import describe_onnx
from jq.iree.runtime import Executable


def both(
    path: Path,
    sizes: dict[str, int | tuple[int, ...]],
    drawn: Drawn,
    settings: list[str],
    folder: Path,
) -> tuple[Call, Call, float]:
    """A call of ours and one of ONNX Runtime's, of the same inputs, and the error of ours."""
    ends = describe_onnx(path)
    named = {*ends["sizes"], *(end["name"] for end in ends["inputs"])}
    model = jq.load_onnx(path, {n: v for n, v in sizes.items() if n in named})
    inputs = jq.trace(model).program.inputs
    key = hashlib.sha256(repr((path.resolve(), sizes, settings)).encode()).hexdigest()[:12]
    kept = folder / f"{path.stem}-{key}"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        jq.compile(model, "float", settings=settings, measure=False).save(kept)
    found = load_artifact(kept)
    ours = Executable.load(found.vmfb, found.parameters, threads=1)
    given = [drawn(spec.name, spec.shape, np.dtype(spec.dtype)) for spec in inputs]
    peer = OnnxRuntime(path, {}, threads=1)
    pairs = zip(ours(*given), peer(given), strict=True)
    error = max(_error(np.asarray(f, np.float64), np.asarray(w, np.float64)) for f, w in pairs)
    return ours.bind(*given), lambda: peer(given), error


def _size(text: str) -> tuple[str, int | tuple[int, ...]]:
    name, _, value = text.rpartition("=")
    numbers = tuple(map(int, value.split("x")))
    return name, numbers if "x" in value else numbers[0]


class Drawn:
    """Inputs: integers below a number, normal floats, and those that have one value everywhere."""

    def __init__(self, integers: int, values: dict[str, Any]) -> None:
        self.integers, self.values, self.rng = integers, values, np.random.default_rng(0)

    def __call__(self, name: str, shape: Any, dtype: np.dtype) -> np.ndarray:
        if name in self.values:
            return np.full(shape, self.values[name], dtype)
        if dtype.kind in "iub":
            return self.rng.integers(0, self.integers, shape).astype(dtype)
        return self.rng.standard_normal(shape).astype(dtype)


def _error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference by the largest value; numbers that are in no result are infinite."""
    found = found.reshape(wanted.shape)
    differ = np.where((found == wanted) | (np.isnan(found) & np.isnan(wanted)), 0, found - wanted)
    largest = np.abs(wanted, where=np.isfinite(wanted), out=np.zeros_like(wanted)).max(initial=0)
    return float(np.nan_to_num(np.abs(differ), nan=np.inf).max(initial=0) / max(largest, 1e-30))


def main(
    files: Annotated[list[Path], typer.Argument(help="ONNX files.")],
    size: Annotated[list[str] | None, typer.Option(help="NAME=N, or INPUT=1x3x64x64.")] = None,
    integers: Annotated[int, typer.Option(help="Integer inputs are drawn below it.")] = 2,
    value: Annotated[
        list[str] | None, typer.Option(help="INPUT=N: of an integer input, everywhere.")
    ] = None,
    settings: Annotated[str, typer.Option(help="Of ours, by comma.")] = "",
    output: Annotated[Path, typer.Option("-o", help="Directory.")] = Path("build/float_files"),
) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    print(f"{this_processor().model}", flush=True)
    sizes = dict(map(_size, size or []))
    values = dict(map(_size, value or []))
    more = [s for s in settings.split(",") if s]
    lines: list[tuple[float, str]] = []
    for path in files:
        try:
            *calls, error = both(path, sizes, Drawn(integers, values), more, output)
        except (jq.JqError, RuntimeError, ValueError) as problem:
            print(f"{path.name}: {str(problem).splitlines()[0]}", flush=True)
            continue
        times = turns(tuple(calls))
        ours, theirs = np.median(times, 0)
        ratio = float(np.median(times[:, 0] / times[:, 1]))
        text = f"{path.name}: {ours:.0f} µs, {theirs:.0f} µs: {ratio:.2f}; error {error:.1e}"
        lines.append((ratio, text))
        print(text, flush=True)
    if lines:
        print("\nworst first:", *(text for _, text in sorted(lines, reverse=True)), sep="\n")
        print(f"median of {len(lines)}: {np.median([r for r, _ in lines]):.2f}")
