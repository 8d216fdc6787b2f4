#!/usr/bin/env python3
"""A search by 1 process, by 2, and by 2 workers of Dask: the same result, and how long each takes.

    scripts/check_jobs.py [MODEL] [--samples 4] [--kill] [-o FILE]

Each search starts with no measurements and compiles what it needs; the seconds are those of its
stage `sensitivity`, which the workers share, with their start and XLA's compilation in them, and
of the whole. With --kill, 2 workers of Dask search, calibrate and compare, and each time one of
them is killed on the way, then, in another run, the scheduler: what was lost, how it went on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jq
from jq.errors import JqError
from tests.support.jobs import cluster


def searched(model: Any, samples: int, folder: Path, workers: int | str) -> dict[str, Any]:
    """One search from nothing: its stages, and what it chose."""
    state = folder / f"{str(workers).replace('/', '_')}.json"
    start = time.perf_counter()
    print(f"{workers} ...", file=sys.stderr)
    found = jq.search(model, "size<=0.3", samples=samples, state=state, workers=workers)
    whole, document = time.perf_counter() - start, found.to_dict()
    chosen = {k: document[k] for k in ("layers", "reached", "frontier")}
    return {
        "seconds": whole,
        "sensitivity": found.seconds["sensitivity"],
        "chosen": chosen,
        "measured": json.loads(state.read_text()),
    }


def killed(what: str, run: Callable[[str], Any], done: Callable[[], int], victim: int) -> Any:
    """Runs with a process of the cluster (0: the scheduler) killed when something is done, and,
    where that ended it, once more here."""
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (address, running):

        def kill() -> None:
            before = done()
            while done() < before + 3:
                time.sleep(0.05)
            running[victim].kill()

        threading.Thread(target=kill, daemon=True).start()
        row: dict[str, Any] = {"what": what, "killed": "worker" if victim else "scheduler"}
        try:
            run(address)
            return row | {"ended": "went on with the other worker"}
        except JqError as error:
            row |= {"ended": str(error), "kept": done()}
        run(2)  # type: ignore[arg-type]
        return row | {"then": "the same command with --jobs 2 went on"}


def kills(model: Any, samples: int, folder: Path) -> list[Any]:
    jobs, rows = folder / "jaxq" / "jobs", []
    compiled = jq.compile(model)
    for victim in (1, 0):
        state = folder / f"killed{victim}.json"

        def measured(state: Path = state) -> int:
            return len(json.loads(state.read_text())["values"]) if state.exists() else 0

        def search(workers: Any, state: Path = state) -> Any:
            return jq.search(model, "size<=0.3", samples=samples, state=state, workers=workers)

        def kept() -> int:
            return len(list(jobs.glob("*.job"))) if jobs.exists() else 0

        rows.append(killed("search", search, measured, victim))
        method = "calibration.method=" + ("mse" if victim else "entropy")
        calibrate = lambda w, m=method: jq.calibrate(model, settings=[m], workers=w)  # noqa: E731
        rows.append(killed("calibrate", calibrate, kept, victim))
        for path in jobs.glob("*.job"):
            path.unlink()
        compare = lambda w: jq.compare(model, compiled, workers=w)  # noqa: E731
        rows.append(killed("compare", compare, kept, victim))
        for path in jobs.glob("*.job"):
            path.unlink()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="scripts/minilm_subset.py:model")
    parser.add_argument("--samples", type=int, default=4, help="calls for a sensitivity")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = name  # nothing of an earlier run
        model = jq.trace(args.model)
        figures: dict[str, Any] = {}
        if args.kill:
            figures["killed"] = kills(model, args.samples, folder)
        else:
            runs = {str(n): searched(model, args.samples, folder, n) for n in (1, 2)}
            with cluster(folder / "dask") as (address, _):
                runs["dask"] = searched(model, args.samples, folder, address)
            one = runs["1"]
            for kind, row in runs.items():
                same = all(row[k] == one[k] for k in ("chosen", "measured"))
                figures[kind] = {k: row[k] for k in ("seconds", "sensitivity")}
                share = row["sensitivity"] / one["sensitivity"]
                figures[kind] |= {"same": same, "of_one": share}
    text = json.dumps(figures, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
