"""The process that runs programs: `python -m peers.worker JOB.json`.

One line of JSON in, one out: `{"load": i}`, `{"run": i, "calls": n}` (milliseconds of n calls,
after one that does not count), `{"drop": i}`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 (gives NumPy the names of its types)

from jq.base.system.processor import peak_rss_bytes
from jq.reporting.benchmark.worker import read_arrays
from peers.programs import RUNTIMES


def main(path: str) -> None:
    jobs = json.loads(Path(path).read_text())
    threads = jobs["threads"]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print does not mix with the answers
    calls: dict[int, Callable[[], Any]] = {}
    for line in sys.stdin:
        try:
            answer = serve(json.loads(line), jobs["programs"], calls, threads)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        print(json.dumps(answer), file=answers, flush=True)


def serve(
    request: dict[str, int],
    programs: list[dict[str, Any]],
    calls: dict[int, Callable[[], Any]],
    threads: int,
) -> dict[str, Any]:
    if "load" in request:
        program = programs[request["load"]]
        loaded = RUNTIMES[program["runtime"]](Path(program["path"]), program["options"], threads)
        inputs = read_arrays(Path(program["inputs"]["folder"]), program["inputs"]["arrays"])
        calls[request["load"]] = loaded.bind([x.copy() for x in inputs])
        return {}
    if "drop" in request:
        calls.pop(request["drop"], None)
        return {"peak_rss_bytes": peak_rss_bytes()}
    call, times = calls[request["run"]], []
    call()
    for _ in range(request["calls"]):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return {"ms": times}


if __name__ == "__main__":
    main(sys.argv[1])
