"""Traps under flags of IREE's compiler: which defects a flag makes go away, and what it costs.

    scripts/check.py flags                                   # all of FLAGS, one after the other
    scripts/check.py flags --flag=--iree-opt-level=O1 --no-networks

For each flag it prints a row: the workarounds all of whose traps pass with it, and for the built-in
networks the time of IREE's compiler and of a call, as ratios to those without the flag, taken in
turns in one run. The rows are the table of `docs/internals/iree.md`.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
ADDED = "ADDED_FLAG"  # in the process of pytest, of which this module is a plugin
FLAGS = (
    "--iree-dispatch-creation-fuse-multi-use=false",
    *(f"--iree-opt-level=O{level}" for level in range(4)),
    "--iree-dispatch-creation-enable-aggressive-fusion=true",
    "--iree-opt-data-tiling=false",
    "--iree-opt-const-eval=false",
    "--iree-opt-const-expr-hoisting=false",
    "--iree-dispatch-creation-enable-fuse-padding-into-linalg-consumer-ops=true",
    "--iree-dispatch-creation-element-wise-fuse-multi-reduction=false",
    "--iree-flow-inline-constants-max-byte-length=0",
    "--iree-stream-emulate-memset=true",
    "--iree-stream-partitioning-favor=debug",
    "--iree-stream-resource-memory-model=discrete",
    "--iree-scheduling-optimize-bindings=false",
    "--iree-llvmcpu-mlir-opt-level=O0",
    "--iree-llvmcpu-disable-vector-peeling=true",
)
PIPELINE = "int8-dynamic"
NETWORKS = ("digits_cnn", "minilm", "gpt", "mobilenet", "resnet")
CALLS = 15

if flag := os.environ.get(ADDED):
    from jq.iree import compiler

    compiler.BASE_FLAGS += (flag,)


def mended(flag: str) -> tuple[list[str], list[str]]:
    """Workarounds that can go with a flag, and the names of the traps that pass with it."""
    from suites.reported import outcomes
    from traps import gone

    from jq.passes.iree_mends.mend import defects

    tests = [f"tests/{t}" for d in defects() if d.seen.startswith("IREE") for t in d.traps]
    found: dict[str, set[str]] = {}
    env = os.environ | {ADDED: flag}
    for test, outcome in outcomes([*tests, "-p", "checks.flags"], env, ROOT, 120.0):
        found.setdefault(test.partition("[")[0], set()).add(outcome)
    passing = [test for test, kinds in found.items() if kinds == {"mended"}]
    return list(gone(found)), [test.partition("::test_")[2] for test in passing]


def costs(flag: str, network: str, programs: dict[str, Any]) -> tuple[float, float]:
    """Time of the compiler and of a call with a flag, by those without it."""
    import jq
    from jq.iree.compiler import compile_module
    from jq.iree.handover import handover
    from jq.iree.runtime import Executable
    from jq.target.target import load_target

    if network not in programs:
        programs[network] = jq.rewrite(f"jq.models:{network}", pipeline=PIPELINE)["target"]
    program = programs[network]
    inputs = [np.zeros(x.shape, x.dtype) for x in program.inputs]
    given, flags = handover(program), load_target("llvm-cpu").flags
    built = [compile_module(given.bytecode, flags=(*flags, *f)) for f in ((), (flag,))]
    calls = [Executable.load(b.vmfb, given.parameters or None) for b in built]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(CALLS):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call(*inputs)
            taken.append(time.perf_counter() - start)
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    return built[1].seconds / built[0].seconds, ratio


def rows(flags: list[str], networks: list[str]) -> Iterator[str]:
    head = ["flag", "can go", "traps that pass", *networks]
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    programs: dict[str, Any] = {}
    for flag in flags:
        both = mended(flag)
        cells = [f"`{flag}`", *(", ".join(f"`{n}`" for n in names) or "none" for names in both)]
        for network in networks:
            cells.append(
                "{:.2f}, {:.2f}".format(*costs(flag, network, programs)) if both[1] else ""
            )
        yield f"| {' | '.join(cells)} |"


def main(
    flag: Annotated[list[str] | None, typer.Option(help="Flags; those of FLAGS.")] = None,
    networks: Annotated[bool, typer.Option(help="Measure the built-in networks.")] = True,
) -> None:
    for row in rows(flag or list(FLAGS), list(NETWORKS) if networks else []):
        print(row, flush=True)


if __name__ == "__main__":
    typer.run(main)
