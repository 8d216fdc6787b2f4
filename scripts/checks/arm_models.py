"""The built-in models on 64-bit Arm, by emulation, against the same artifact on x86-64.

    ./scripts/check.py arm_models [--parts FOLDER]
    ./scripts/check.py arm_models --model minilm,gpt --pipeline int8-dynamic --samples 2

Each model is compiled at a reduced size as one artifact with a program for AVX2, which this machine
runs, and two for Arm, which qemu runs: one with dot products, on a Neoverse N1, which has no more
than those, and one with int8 matrix products. All three must have equal bits on every input. In the
pipeline `float` alone, whose sums IREE compiles as suits a vector, they may differ by a thousandth
of the largest result; how much is told.

Parts are those of `arm.py`. Where they cannot be had it says why, and that nothing was
tested; the exit code is 0 then, and 1 where programs differ.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

import jq
from checks.arm import FOLDER, Missing, emulator, prepare
from jq.artifact.programs import TargetProgram
from jq.driver.compiled import CompiledModel
from jq.frontends.tracing.inputs import flat_inputs
from tests.kernels.emulated import Emulated

SIZES: dict[str, dict[str, Any]] = {
    "minilm": {"layers": 2, "sequence": 40, "calibration": 16},
    "resnet": {"depth": 26, "width": 16, "image": 64, "classes": 40},
    "mobilenet": {"depth": 0.5, "width": 0.5, "image": 64, "classes": 40},
    "gpt": {"layers": 2, "hidden": 128, "vocabulary": 500, "context": 64},
    "digits_cnn": {"width": 8, "epochs": 1, "batch": 4},
    "mlp": {},
}
PIPELINES = "int8-static-integer-only,int8-static,int8-dynamic,float"
TARGETS = "x86-64-v3,llvm-cpu-aarch64,aarch64_i8mm"
CPUS = {"aarch64_dotprod": "neoverse-n1", "aarch64_i8mm": "max"}  # as qemu calls them
ROUNDING = 1e-3  # of the largest result, in float programs


def on_arm(
    program: TargetProgram, compiled: CompiledModel, samples: list[list[np.ndarray]], folder: Path
) -> list[list[np.ndarray]]:
    """Results of a program for the samples."""
    assert isinstance(program.vmfb, Path)
    weights = compiled.parameters
    assert weights is None or isinstance(weights, Path)
    command = shlex.join(emulator(folder, CPUS[program.kernels]))
    there = Emulated(program.vmfb.read_bytes(), 0, weights, command)
    return [there.run("main", inputs) for inputs in samples]


def difference(here: list[np.ndarray], there: list[np.ndarray]) -> float:
    """The largest one as a part of the largest result; 0 where all bits are equal."""
    worst = 0.0
    for x, y in zip(here, there, strict=True):
        if x.tobytes() != y.tobytes():
            wide = x.astype(np.float64), y.view(x.dtype).astype(np.float64)
            error = np.abs(wide[0] - wide[1]).max() / np.abs(wide[0]).max()
            worst = max(worst, float(error) if np.isfinite(error) else np.inf, sys.float_info.min)
    return worst


def compare(name: str, pipeline: str, samples: int, folder: Path) -> bool:
    """True where the programs of a model agree; prints a line for each of those for Arm."""
    model = jq.models.build(name, **SIZES[name])
    given = model.evaluation() if callable(model.evaluation) else model.evaluation
    agree = True
    with TemporaryDirectory() as made:
        built = jq.compile(model, pipeline=pipeline, target=TARGETS)
        compiled = jq.load(built.save(Path(made) / "out"))
        structure = compiled.manifest.in_structure
        inputs = [
            flat_inputs(compiled.inputs, structure, batch)
            for batch in itertools.islice(given or (), samples)
        ]
        here = [compiled.call_flat(each) for each in inputs]
        for program in compiled.programs:
            if program.kernels not in CPUS:
                continue
            there = on_arm(program, compiled, inputs, folder)
            found = [difference(x, y) for x, y in zip(here, there, strict=True)]
            worst = max(found)
            told = f"{found.count(0.0)} of {len(found)} equal"
            told += f", the largest difference is {worst:.1e}" if worst else ""
            print(f"{name} {pipeline} {program.kernels}: {told}", flush=True)
            agree &= worst <= (ROUNDING if pipeline == "float" else 0.0)
    return agree


def main(
    model: Annotated[str, typer.Option(help="By comma.")] = ",".join(SIZES),
    pipeline: Annotated[str, typer.Option(help="By comma.")] = PIPELINES,
    samples: Annotated[int, typer.Option(help="Of each evaluation set, at most.")] = 8,
    parts: Annotated[Path, typer.Option(help="Where the parts are kept.")] = FOLDER,
) -> None:
    """The bits of the built-in models on Arm are those of x86-64."""
    folder = parts.absolute()
    try:
        prepare(folder)
    except Missing as missing:
        print(f"skipped, nothing was tested: {missing}")
        raise typer.Exit(0) from None
    pairs = list(itertools.product(model.split(","), pipeline.split(",")))
    agree = [compare(*pair, samples, folder) for pair in pairs]
    told = f"{agree.count(True)} of {len(agree)} models and pipelines agree"
    print(f"{told}, on {2 * len(agree)} programs for Arm in {Emulated.runs} calls")
    raise typer.Exit(int(not all(agree)))
