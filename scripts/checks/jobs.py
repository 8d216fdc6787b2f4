"""A search by 1 process, by 2, and by 2 workers of Dask: the same result, and how long each takes.

    scripts/check.py jobs [MODEL] [--samples 4] [--who core 1 2 dask] [--kill [worker|scheduler]]

Each search is a process of its own that starts with no measurements and an empty cache; the seconds
are those of its stage `sensitivity`, which the workers share, with XLA's compilation in them, and
of the whole. `core` is one process on one core, which each of two has on a machine of two; `1` has
all of them. With --kill, 2 workers of Dask search, calibrate and compare, and each time one of
them is killed on the way, then, in another run, the scheduler: what was lost, how it went on. The
code must stay as it is meanwhile: workers check that it is the caller's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jq
from jq.artifact.store import entries, remove
from jq.base.errors import JqError
from jq.frontends.model import batches
from jq.frontends.tracing.source import load_model
from tests.support.jobs import cluster

SCRIPT = Path(__file__).resolve().parents[1] / "check.py"
WHO = ("core", "1", "2", "dask")


def searched(model: str, samples: int, who: str) -> dict[str, Any]:
    """One search from nothing: its stages, and what it chose."""
    if who == "core":
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    folder = Path(os.environ["XDG_CACHE_HOME"])
    with ExitStack() as stack:
        workers: int | str = {"core": 1, "1": 1, "2": 2}.get(who, who)
        if who == "dask":
            workers = stack.enter_context(cluster(folder / "dask"))[0]
        start, state = time.perf_counter(), folder / "state.json"
        found = jq.search(model, "size<=0.3", samples=samples, state=state, workers=workers)
        whole, document = time.perf_counter() - start, found.to_dict()
    chosen = {k: document[k] for k in ("layers", "reached", "frontier")}
    values = json.loads(state.read_text())
    return {"seconds": whole, **found.seconds, "chosen": chosen, "measured": values}


def in_a_process(model: str, samples: int, who: str) -> dict[str, Any]:
    """`searched` in a process that knows nothing of earlier ones."""
    with tempfile.TemporaryDirectory() as name:
        environment = {**os.environ, "XDG_CACHE_HOME": name}
        command = [sys.executable, str(SCRIPT), "jobs", model]
        command += ["--samples", str(samples), "--alone", who]
        print(f"{who} ...", file=sys.stderr)
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def compared(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Seconds of each, and whether the first came to the same."""
    first, figures = next(iter(rows.values())), {}
    for who, row in rows.items():
        same = all(row[k] == first[k] for k in ("chosen", "measured"))
        seconds = {k: v for k, v in row.items() if isinstance(v, float)}
        share = row["sensitivity"] / first["sensitivity"]
        figures[who] = seconds | {"same": same, "of_the_first": share}
    return figures


def killed(what: str, run: Callable[[str], Any], done: Callable[[], int], victim: int) -> Any:
    """Runs with a process of the cluster (0: the scheduler) killed when a first job is done, and,
    where that ended it, once more here."""
    row: dict[str, Any] = {"what": what, "killed": "worker" if victim else "scheduler"}
    print(f"{what}, {row['killed']} ...", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (address, running):
        before, ended = done(), threading.Event()

        def kill() -> None:
            while not (more := done() - before):
                if ended.wait(0.02):
                    return
            row["jobs_done_then"] = more
            running[victim].kill()

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        start = time.perf_counter()
        try:
            run(address)
            row["ended"] = "as if nothing had happened"
        except JqError as error:
            row |= {"ended": str(error), "jobs_kept": done() - before}
        row["seconds"] = round(time.perf_counter() - start, 1)
        ended.set()
        killer.join()
        if "jobs_done_then" not in row:
            row["ended"] = "before a job was seen to be done: nothing was killed"
        if "jobs_kept" in row:
            start = time.perf_counter()
            run(2)  # type: ignore[arg-type]
            row["seconds_of_the_rest"] = round(time.perf_counter() - start, 1)
    print(json.dumps(row), file=sys.stderr)
    return row


def kills(name: str, samples: int, folder: Path, victims: list[str]) -> list[Any]:
    rows: list[Any] = []
    root = folder / "jaxq" / "store"
    model = jq.trace(name)
    compiled = jq.compile(model)
    # More calls than jobs that are handed out at once: something is left to be lost.
    known = load_model(name)
    assert isinstance(known, jq.Model)
    calls = [*(batches(known.calibration) or []), *(batches(known.evaluation) or [])]
    for victim in (("scheduler", "worker").index(name) for name in victims):
        state = folder / f"killed{victim}.json"

        def measured(state: Path = state) -> int:
            return len(json.loads(state.read_text())["values"]) if state.exists() else 0

        def search(workers: Any, state: Path = state) -> Any:
            return jq.search(model, "size<=0.3", samples=samples, state=state, workers=workers)

        def kept() -> int:
            return sum(entry.kind == "job" for entry in entries(root))

        rows.append(killed("search", search, measured, victim))
        method = "calibration.method=" + ("mse" if victim else "entropy")
        calibrate = lambda w, m=method: jq.calibrate(model, settings=[m], workers=w)  # noqa: E731
        rows.append(killed("calibrate", calibrate, kept, victim))
        for entry in entries(root):
            remove(entry)
        compare = lambda w: jq.compare(model, compiled, calls, workers=w)  # noqa: E731
        rows.append(killed("compare", compare, kept, victim))
        for entry in entries(root):
            remove(entry)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="scripts/minilm_subset.py:model")
    parser.add_argument("--samples", type=int, default=4, help="calls for a sensitivity")
    parser.add_argument("--who", nargs="+", default=list(WHO), choices=WHO)
    parser.add_argument("--alone", choices=WHO, help="one search, in this process")
    parser.add_argument("--kill", nargs="*", choices=["worker", "scheduler"])
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(searched(args.model, args.samples, args.alone)))
        return
    if args.kill is not None:
        victims = args.kill or ["worker", "scheduler"]
        with tempfile.TemporaryDirectory() as name:
            os.environ["XDG_CACHE_HOME"] = name  # nothing of an earlier run
            found = kills(args.model, args.samples, Path(name), victims)
            figures: Any = {"killed": found}
    else:
        rows = {who: in_a_process(args.model, args.samples, who) for who in args.who}
        figures = compared(rows)
    text = json.dumps(figures, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")
