"""Time and memory of reading a large ONNX file.

    scripts/benchmark.py onnx_import --megabytes 400

The file is written to a temporary folder first, its weights inside or (--external) beside it; a
process of its own then loads it with `jq.load_onnx` and traces the program. Memory is the growth
of the process's peak over what the imports took, as a share of the file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

SIDE = 2048
CHILD = """
import json, sys, time
from pathlib import Path
import jq
from jq.frontends.source import trace
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
small = trace(jq.load_onnx(sys.argv[2]))
before, wall, spent = peak(), time.perf_counter(), time.process_time()
large = trace(jq.load_onnx(sys.argv[1]))
wall, spent = time.perf_counter() - wall, time.process_time() - spent
print(json.dumps({"seconds": wall, "processor": spent, "grown": peak() - before}))
"""


def write(path: Path, count: int, *, external: bool) -> None:
    """A chain of `count` products of float32[SIDE, SIDE]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = [rng.random((SIDE, SIDE), np.float32) for _ in range(count)]
    tensors = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    names = ["x", *(f"h{i}" for i in range(count - 1)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(count)]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, SIDE])] for n in "xy"]
    graph = helper.make_graph(nodes, "chain", *ends, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path, save_as_external_data=external, location=f"{path.stem}.bin")


def main(
    megabytes: Annotated[int, typer.Option(help="Size of the file.")] = 400,
    external: Annotated[bool, typer.Option("--external", help="Weights beside the file.")] = False,
) -> None:
    with tempfile.TemporaryDirectory(prefix="jaxq-import-") as name:
        folder = Path(name)
        large, small = folder / "large.onnx", folder / "small.onnx"
        write(large, max(2, round(megabytes * 1e6 / (4 * SIDE * SIDE))), external=external)
        write(small, 2, external=external)
        size = sum(f.stat().st_size for f in folder.glob("large.*"))
        command = [sys.executable, "-c", CHILD, str(large), str(small)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        found = json.loads(done.stdout)
    print(
        f"{size / 1e6:.0f} MB: {found['seconds']:.2f} s ({found['processor']:.2f} s of processor "
        f"time), memory grows by {found['grown'] / size:.2f} times that"
    )
