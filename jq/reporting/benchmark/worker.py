"""The process that runs what is measured: `main("JOB.json")`, started by `jq.base.system.child`.

It answers one line of JSON to each line on its standard input: `{"runs": n}` gives the milliseconds
of n calls. At the end of input it reports the peak memory and leaves."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 (gives NumPy the names of its types)
import numpy as np

from jq.base.system.processor import peak_rss_bytes


def main(path: str) -> None:
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    from jq.iree.runtime import Executable

    before = peak_rss_bytes()
    start = time.perf_counter()
    parameters = Path(job["parameters"]) if job["parameters"] else None
    program = Executable.load(Path(job["module"]), parameters, threads=job["threads"])
    load_ms = 1e3 * (time.perf_counter() - start)
    inputs = read_arrays(Path(path).parent, job["inputs"])
    serve(lambda: program(*inputs), load_ms=load_ms, baseline_rss_bytes=before)


def serve(call: Callable[[], Any], **facts: float) -> None:
    """Answers the parent until it closes the pipe; an error becomes the answer."""
    for line in sys.stdin:
        times = []
        try:
            for _ in range(json.loads(line)["runs"]):
                start = time.perf_counter()
                call()
                times.append(1e3 * (time.perf_counter() - start))
        except Exception as error:
            _answer({"error": str(error)})
            return
        _answer({"ms": times})
    _answer({"peak_rss_bytes": peak_rss_bytes(), **facts})


def _answer(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def write_arrays(folder: Path, arrays: list[np.ndarray]) -> list[dict[str, Any]]:
    """Arrays as raw files (`.npy` does not keep bfloat16) and what is needed to read them."""
    rows = []
    for i, array in enumerate(arrays):
        (folder / f"input{i}").write_bytes(np.ascontiguousarray(array).tobytes())
        rows.append({"shape": list(array.shape), "dtype": array.dtype.name})
    return rows


def read_arrays(folder: Path, rows: list[dict[str, Any]]) -> list[np.ndarray]:
    """The arrays that `write_arrays` wrote into `folder`, by the rows that it returned."""
    return [
        np.frombuffer((folder / f"input{i}").read_bytes(), row["dtype"]).reshape(row["shape"])
        for i, row in enumerate(rows)
    ]
