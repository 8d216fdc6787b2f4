"""AutoRound on MiniLM's encoder: weights in 2 and 3 bits, a scale and a zero point for 32 columns.

It runs by a Python of its own, which `AUTOROUND_PYTHON` names (`pip install auto-round`, `torch`,
`transformers`). Its weights, as they are after quantization, take the place of the float ones in
the ONNX file that ONNX Runtime runs, and tables that rows are looked up in are rounded to 8 bits a
number with a scale for each row, as ours are. What all this would take stored, with all else in
float32, is kept in a file of that size beside it: the bytes of the table are those of codes."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import numpy as np

from jq.models.zoo import minilm
from peers.case import FEWER, Case, Contender, Skipped, Source

BLOCK, WORKER = 32, Path(__file__).with_name("autoround_worker.py")
PYTHON = "AUTOROUND_PYTHON"
VERSION = "import auto_round, torch; print(auto_round.__version__, torch.__version__)"


def contenders(case: Case) -> list[Contender]:
    """Those of MiniLM, whose checkpoint AutoRound reads."""
    if case.name != "minilm":
        return []
    if not (python := os.environ.get(PYTHON)):
        raise Skipped(f"{PYTHON} names no Python with auto_round")
    found = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=True)
    versions = dict(zip(("auto_round", "torch"), found.stdout.split()[-2:], strict=True))
    return [
        Contender(
            name=f"AutoRound int{bits} weights",
            runtime="onnxruntime",
            kind=FEWER,
            program=f"autoround int{bits}",
            build=partial(build, bits=bits),
            versions=versions,
        )
        for bits in (2, 3)
    ]


def build(source: Source, folder: Path, bits: int) -> str:
    import onnx
    from onnx import numpy_helper

    data, out = source.folder / "autoround.npz", source.folder / f"autoround-{bits}.npz"
    ids, mask = (np.concatenate([x[i] for x in source.calibration]) for i in (0, 1))
    tokens = ids[mask > 0]  # in rows without padding, which would count in its loss
    rows = tokens[: len(tokens) // ids.shape[1] * ids.shape[1]].reshape(-1, ids.shape[1])
    np.savez(data, ids=rows, mask=np.ones_like(rows))
    checkpoint = minilm.folder() / "model.safetensors"
    command = [os.environ[PYTHON], WORKER, checkpoint, data, out, bits, BLOCK]
    subprocess.run(list(map(str, command)), check=True)
    model, new = onnx.load(source.onnx), np.load(out)
    before = np.load(out.with_suffix(".float.npz"))
    left, size = set(new.files), 0
    tables = {node.input[0] for node in model.graph.node if node.op_type.startswith("Gather")}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        name = next((n for n in left if _alike(before[n].T, array)), None)
        if name is None and tensor.name in tables:
            step = np.maximum(np.abs(array).max(1, keepdims=True), 1e-30) / 127
            rounded = np.rint(array / step) * step
            tensor.CopyFrom(numpy_helper.from_array(rounded.astype(array.dtype), tensor.name))
            size += array.size + step.nbytes
            continue
        if name is None:
            size += array.nbytes
            continue
        tensor.CopyFrom(numpy_helper.from_array(new[name].T.copy(), tensor.name))
        left.remove(name)
        size += array.size * bits // 8 + array.size // BLOCK * (16 + bits) // 8
    assert not left, left
    onnx.save(model, source.folder / f"autoround-{bits}.onnx")
    with (folder / "size").open("wb") as file:
        file.truncate(size)
    return f"../autoround-{bits}.onnx"


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=0, atol=1e-6))
