"""The quantized types in the `qdq` modules of built-in models, and whether they are read back.

    scripts/suite.py typed_values                                   # minilm, resnet, digits_cnn
    scripts/suite.py typed_values digits_cnn --pipeline int8-static-integer-only

For each: how many values between ops carry a quantized type, why the others do not, and whether the
module, written as bytecode and read again, is compiled to the same integers. The exit code is 1
where it is not.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

import jq
from jq.ir.oracle.xla import XlaExecutable
from suites.typed_values import emitted, share

MODELS = ["minilm", "resnet", "digits_cnn"]


def main(
    models: Annotated[list[str] | None, typer.Argument(help="Built-in models.")] = None,
    pipeline: Annotated[str, typer.Option(help="One with calibrated ranges.")] = "int8-static",
) -> None:
    equal = [_report(name, pipeline) for name in models or MODELS]
    raise typer.Exit(0 if all(equal) else 1)


def _report(name: str, pipeline: str) -> bool:
    levels = jq.rewrite(f"jq.models:{name}", pipeline=pipeline, settings={"recovery": False})
    written = emitted(levels["qdq"])
    again = jq.trace(written.materialize())
    rewritten = jq.rewrite(again, pipeline=pipeline, settings={"recovery": False})["integer"]
    inputs = [_example(i.shape, np.dtype(i.dtype)) for i in written.inputs]
    pairs = zip(*(XlaExecutable(p)(*inputs) for p in (rewritten, levels["integer"])), strict=True)
    equal = all(np.array_equal(a, b) for a, b in pairs)
    said = "equal" if equal else "DIFFERS"
    print(f"{name} ({pipeline}), read again: {said}; with a quantized type {share(written)}")
    return equal


def _example(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> np.ndarray:
    rng = np.random.default_rng(0)
    if dtype.kind == "f":
        return rng.uniform(0, 1, shape).astype(dtype)
    return np.ones(shape, dtype)
