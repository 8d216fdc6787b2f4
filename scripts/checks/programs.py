"""The programs of one artifact against each other: on how many inputs they have equal bits.

    scripts/check.py programs minilm
    scripts/check.py programs gpt --pipeline int8-dynamic --samples 16
    scripts/check.py programs minilm --isa avx2,avx512_vnni,amx_int8

Compiles a built-in model once for every instruction set, and runs each program that this machine
can run on the model's evaluation set. Ends with 1 where one differs from the first.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import jax
import numpy as np
import typer

import jq
from jq.base.system.processor import LIMIT
from jq.frontends.model import Model
from jq.kernels import available


def bits(folder: Path, isa: str, model: Model, samples: int) -> list[bytes]:
    """The results of the program that a machine with this instruction set runs, input by input."""
    os.environ[LIMIT] = isa
    compiled = jq.load(folder)
    assert compiled.program.kernels == isa, compiled.program.target
    batches = model.evaluation() if callable(model.evaluation) else model.evaluation
    return [
        b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(compiled(*batch)))
        for batch in itertools.islice(batches or (), samples)
    ]


def main(
    model: Annotated[str, typer.Argument(help="A built-in model.")],
    pipeline: Annotated[str, typer.Option()] = "int8-static",
    isa: Annotated[
        str, typer.Option(help="By comma; those that this machine lacks are left out.")
    ] = "avx2,avx512,avx512_vnni,amx_int8",
    samples: Annotated[int, typer.Option(help="Of the evaluation set, at most.")] = 256,
) -> None:
    """Equal bits of the programs of one artifact."""
    here = {found.name for found in available()}
    names = [name for name in isa.split(",") if name in here]
    built = jq.models.get(model)
    with TemporaryDirectory() as folder:
        made = jq.compile(built, pipeline=pipeline, target=",".join(names))
        place = made.save(Path(folder) / "out")
        first, *others = [(name, bits(place, name, built, samples)) for name in names]
    different = 0
    for name, found in others:
        equal = sum(x == y for x, y in zip(found, first[1], strict=True))
        different += len(found) - equal
        print(f"{name} against {first[0]}: {equal} of {len(found)} equal")
    raise typer.Exit(int(different > 0))
