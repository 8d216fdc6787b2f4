"""Time that `jq.compile` takes, with nothing kept from before and out of the cache.

    scripts/benchmark.py compile [MODEL ...] [--pipeline int8-static] [--rounds 3] [--json]

Ranges are observed beforehand and recovery is off: what is timed is tracing, rewriting, kernels and
IREE. The cache is in a folder of its own. Prints the shortest and the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from statistics import median
from typing import Any

import jq
from jq.base.system.processor import this_processor
from jq.frontends.tracing.source import load_model
from jq.passes.pipeline import load_pipeline

MODELS = ("jq.models:minilm", "jq.models:resnet", "jq.models:mobilenet")
SETTINGS = ["recovery=false"]


def seconds(model: Any, pipeline: str, ranges: Any, cache: bool) -> float:
    start = time.perf_counter()
    jq.compile(model, pipeline, ranges=ranges, settings=SETTINGS, cache=cache)
    return time.perf_counter() - start


def measure(name: str, pipeline: str, rounds: int) -> dict[str, Any]:
    model = load_model(name)
    static = load_pipeline(pipeline).settings.activations.mode == "static"
    ranges = jq.calibrate(model, pipeline=pipeline, settings=SETTINGS) if static else None
    first = [seconds(model, pipeline, ranges, cache=False) for _ in range(rounds)]
    seconds(model, pipeline, ranges, cache=True)
    again = [seconds(model, pipeline, ranges, cache=True) for _ in range(rounds)]
    return {"model": name, "pipeline": pipeline, "seconds": first, "cached_seconds": again}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS, help="as the commands take them")
    parser.add_argument("--pipeline", default="int8-static")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each model")
    args = parser.parse_args()
    print(f"{this_processor().model}, {os.cpu_count()} cores", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="jaxq-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for name in args.models:
            row = measure(name, args.pipeline, args.rounds)
            first, again = row["seconds"], row["cached_seconds"]
            text = f"{name:24} {args.pipeline:16} {min(first):6.2f} s, median {median(first):6.2f}"
            cached = f"; cached {min(again):5.2f} s"
            print(json.dumps(row) if args.json else text + cached, flush=True)
