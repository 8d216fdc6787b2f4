"""Compiles a stack of MLP layers with a billion parameters: how long, and how much memory.

    scripts/benchmark.py large [--parameters 1e9] [--pipeline int8-weight-only] [--scan] [-o FILE]

The compile runs in a child process whose peak memory, and that of iree-compile below it, is
measured. The compiled model is run once and compared with NumPy, so that speed is not bought
with a wrong program.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 4096


def parameters(layers: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    scale = np.float32(1.5 / WIDTH**0.5)
    return {
        f"layer{i:03}": {  # JAX sorts keys: their order is the order of the layers
            "kernel": rng.standard_normal((WIDTH, WIDTH), np.float32) * scale,
            "bias": rng.standard_normal(WIDTH, np.float32) * np.float32(0.01),
        }
        for i in range(layers)
    }


def stacked(params: dict[str, Any]) -> dict[str, Any]:
    """The same as one tensor for all layers of each kind."""
    layers = list(params.values())
    out = {k: np.empty((len(layers), *v.shape), v.dtype) for k, v in layers[0].items()}
    for i, layer in enumerate(layers):
        for k in out:
            out[k][i] = layer.pop(k)
    return out


def float_result(params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    for layer in params.values():
        x = np.maximum(x @ layer["kernel"] + layer["bias"], 0)
    return x


def work(layers: int, pipeline: str, scan: bool, pipe: Any) -> None:
    """In the child: builds the model, compiles, saves, loads, runs."""
    import jax
    import jax.numpy as jnp

    import jq
    from jq.base.system.processor import peak_rss_bytes

    def step(x: Any, layer: Any) -> Any:
        return jnp.maximum(x @ layer["kernel"] + layer["bias"], 0)

    def fn(params: Any, x: Any) -> Any:
        if scan:
            return jax.lax.scan(lambda x, layer: (step(x, layer), None), x, params)[0]
        for layer in params.values():
            x = step(x, layer)
        return x

    params = parameters(layers)
    x = np.random.default_rng(1).standard_normal((1, WIDTH), np.float32)
    reference = float_result(params, x)
    params = stacked(params) if scan else params
    arrays = jax.tree.leaves(params)
    count, size = sum(a.size for a in arrays), sum(a.nbytes for a in arrays)
    pipe.send({"parameters": count, "parameter_bytes": size, "before_bytes": resident(os.getpid())})
    start = time.perf_counter()
    compiled = jq.compile(jq.Model(fn, params, (x,), name="large"), pipeline, cache=False)
    compiled_at = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="jaxq-") as folder:
        compiled.save(Path(folder) / "large")
        saved_at = time.perf_counter()
        pipe.send(
            {
                "compile_seconds": compiled_at - start,
                "save_seconds": saved_at - compiled_at,
                "stages": dict(compiled.seconds),
                "warnings": len(compiled.audit().warnings),
                "own_peak_bytes": peak_rss_bytes(),
            }
        )
        pipe.recv()  # the peak so far is noted
        y = np.asarray(jq.load(Path(folder) / "large")(x))
        stored = sum(f.stat().st_size for f in (Path(folder) / "large").iterdir())
    cosine = float((y * reference).sum() / np.linalg.norm(y) / np.linalg.norm(reference))
    pipe.send({"artifact_bytes": stored, "cosine": cosine})


def resident(pid: int) -> int:
    """Resident bytes of a process and all below it."""
    total = 0
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(x.split()[1]) * 1024 for x in lines if x.startswith("Pss:"))
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                # Between vfork and exec a child is its parent's memory once more.
                if Path(f"/proc/{child}/cmdline").read_bytes() != command:
                    total += resident(int(child))
    except (OSError, StopIteration):
        pass  # it has just ended
    return total


class Watch(threading.Thread):
    """Samples the memory of a tree of processes ten times a second; shared pages count once."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self.pid, self.peak, self.stop = pid, 0, threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.1):
            self.peak = max(self.peak, resident(self.pid))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=float, default=1e9)
    parser.add_argument("--pipeline", default="int8-weight-only")
    parser.add_argument("--scan", action="store_true", help="all layers as one tensor, in a loop")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    args = parser.parse_args()
    layers = max(1, round(args.parameters / WIDTH**2))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=work, args=(layers, args.pipeline, args.scan, theirs))
    start = time.perf_counter()
    child.start()
    theirs.close()
    assert child.pid is not None
    watch = Watch(child.pid)
    watch.start()
    figures: dict[str, Any] = {"layers": layers, "pipeline": args.pipeline}
    try:
        figures |= ours.recv()
        figures |= ours.recv()
        figures["peak_bytes"] = max(watch.peak, figures["own_peak_bytes"])  # sampled, exact
        figures["peak_over_parameters"] = figures["peak_bytes"] / figures["parameter_bytes"]
        ours.send("go on")
        figures |= ours.recv()
    except EOFError:
        child.join()
        raise SystemExit(f"the child ended with code {child.exitcode}") from None
    child.join()
    watch.stop.set()
    figures |= {"total_seconds": time.perf_counter() - start, "peak_bytes_with_run": watch.peak}
    text = json.dumps(figures, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")
