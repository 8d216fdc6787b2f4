"""Holds `jaxq estimate`, given this machine's measured rates, against measured times.

    scripts/check.py estimate build FOLDER [MODEL ...]   # compiles all that is measured
    scripts/check.py estimate measure FOLDER             # on one thread; prints the table

The rates are those of programs that are no part of the models: a product of 512 rows with a square
matrix, one that sums 16 numbers only (what is left then is reading and writing), one row times
matrices that do and do not fit in the cache, and a chain of tiny products. A layer is a kernel of
the artifact; IREE's profile says how long it takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import jq
from jq.reporting.benchmark.session import random_inputs
from jq.target.hardware import Hardware
from jq.target.target import load_target

MODELS = ("jq.models:resnet", "jq.models:mobilenet", "jq.models:minilm")
PIPELINE = "int8-static"
CHAIN = 32
CACHE = 1 << 20  # bytes for activations: the level-2 cache of a core
RNG = np.random.default_rng(0)


def product(rows: int, inner: int, columns: int, count: int = 1) -> jq.Model:
    """So many products, one after the other."""
    shapes = [(inner, columns)] + [(columns, columns)] * (count - 1)
    params = {f"w{i}": RNG.standard_normal(s).astype(np.float32) for i, s in enumerate(shapes)}

    def chain(p: Any, x: Any) -> Any:
        for i in range(count):
            x = x @ p[f"w{i}"]
        return x

    x = RNG.standard_normal((rows, inner)).astype(np.float32)
    return jq.Model(chain, params, (x,), calibration=[(x,)])


MEASURED: dict[str, tuple[Callable[[], jq.Model], str]] = {
    "product": (lambda: product(512, 1024, 1024), PIPELINE),
    "float": (lambda: product(512, 1024, 1024), "float"),
    "elements": (lambda: product(4096, 16, 256), PIPELINE),
    "near": (lambda: product(1, 512, 512), PIPELINE),
    "far": (lambda: product(1, 4096, 4096), PIPELINE),
    "chain": (lambda: product(1, 16, 16, CHAIN), PIPELINE),
}


def build(folder: Path, models: list[str]) -> None:
    for name, (make, pipeline) in MEASURED.items():
        jq.compile(make(), pipeline).save(folder / name)
    for model in models:
        jq.compile(model, PIPELINE).save(folder / model.rpartition(":")[2])
    (folder / "models.json").write_text(json.dumps(models))


@dataclass(frozen=True)
class Kernel:
    """Attributes:
    nanoseconds: of one execution, the median in calls that are profiled.
    executions: in a call.
    """

    nanoseconds: float
    executions: int


def run(folder: Path) -> tuple[float, dict[str, Kernel]]:
    """Nanoseconds of a call, and its kernels."""
    saved = jq.load(folder)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        vmfb, profile = saved.vmfb, work / "profile"
        command = ["iree-benchmark-module", f"--module={vmfb!s}", "--device=local-sync"]
        command += ["--function=main", "--benchmark_min_time=0.7s", "--benchmark_format=json"]
        if parameters := list(folder.glob("*.irpa")):
            command.append(f"--parameters=model={parameters[0]}")
        for i, array in enumerate(random_inputs(saved.inputs)):
            np.save(work / f"{i}.npy", np.asarray(array))
            command.append(f"--input=@{work / f'{i}.npy'}")
        times = json.loads(_output([*command, "--benchmark_repetitions=5"]))["benchmarks"]
        whole = 1e6 * min(b["real_time"] for b in times if b["run_type"] == "iteration")
        _output(
            [
                *command,
                "--device_profiling_mode=host-execution",
                f"--device_profiling_output={profile}",
            ]
        )
        listed = ["iree-profile", "dispatch", "--dispatch_events", "--format=jsonl", str(profile)]
        spans = defaultdict(list)
        for line in _output(listed).splitlines():
            event = json.loads(line)
            if event.get("type") == "host_dispatch_event":
                spans[event["key"]].append(event["duration_ns"])
    calls = min(map(len, spans.values()))
    return whole, {k: Kernel(statistics.median(v), len(v) // calls) for k, v in spans.items()}


def _output(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return done.stdout.decode()


def rates(folder: Path) -> Hardware:
    """A cycle is a nanosecond."""
    measured = {name: run(folder / name) for name in MEASURED}
    largest = {n: max(k.nanoseconds for k in found.values()) for n, (_, found) in measured.items()}
    multiplied = 512 * 1024 * 1024
    macs = {
        "int8 x int8": multiplied / largest["product"],
        "float32 x float32": multiplied / largest["float"],
    }
    macs["uint8 x int8"] = macs["int8 x int8"]
    return Hardware(
        macs_per_cycle=macs,
        clock_mhz=1000,
        elements_per_cycle=4096 * (16 + 256) / largest["elements"],
        sram_bytes=CACHE,
        sram_bytes_per_cycle=512 * 512 / largest["near"],
        dram_bytes_per_cycle=4096 * 4096 / largest["far"],
        op_cycles=measured["chain"][0] / CHAIN,
    )


def compared(model: str, folder: Path, hardware: Hardware) -> dict[str, Any]:
    """Both totals, and how alike the layers are ordered: those that a kernel of ours computes."""
    target = load_target("llvm-cpu").model_copy(update={"hardware": hardware})
    estimated = jq.estimate(model, target, pipeline=PIPELINE)
    whole, kernels = run(folder)
    cycles = {layer["name"]: layer["cycles"] for layer in estimated["layers"]}
    of_kernel: dict[str, list[str]] = defaultdict(list)
    for op in jq.load(folder).manifest.ops:
        if op["kernel"] and op["name"] in cycles:
            of_kernel[op["kernel"]].append(op["name"])
    layers = {}
    for kernel, ops in of_kernel.items():
        parts = [k for key, k in kernels.items() if key.startswith(f"jq_{kernel}")]
        together = len(ops) // parts[0].executions  # queries, keys and values; both of attention
        for i in range(0, len(ops), together):
            own = ops[i : i + together]
            layers[own[0]] = [sum(cycles[n] for n in own), sum(k.nanoseconds for k in parts)]
    order = spearmanr(*zip(*layers.values(), strict=True)).statistic
    return {
        "model": model,
        "estimated_ms": estimated["total_ms"],
        "measured_ms": whole / 1e6,
        "ratio": estimated["total_ms"] * 1e6 / whole,
        "rank_correlation": float(order),
        "layers": layers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["build", "measure"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("-o", "--output", type=Path, help="write layer by layer there, as JSON")
    args = parser.parse_args()
    if args.what == "build":
        args.folder.mkdir(parents=True, exist_ok=True)
        build(args.folder, args.models)
        return
    hardware = rates(args.folder)
    print(hardware)
    models = json.loads((args.folder / "models.json").read_text())
    rows = [compared(m, args.folder / m.rpartition(":")[2], hardware) for m in models]
    for row in rows:
        print({k: v for k, v in row.items() if k != "layers"} | {"layers": len(row["layers"])})
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1) + "\n")
