"""Prints how many values per second each number format encodes and decodes in NumPy, on one core.

python scripts/benchmark.py encoding [FORMAT...] [--size N] [--axis 0|1]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np

from jq.base.errors import FormatError
from jq.formats import Encoding, Format, get_format


def best(f: Callable[[], object], repeats: int = 5) -> float:
    """Shortest processor time of a call in seconds: other work on the machine does not count."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        f()
        times.append(time.process_time() - start)
    return min(times)


def measure(name: str, x: np.ndarray, axis: int) -> str:
    fmt = get_format(name)
    block = fmt.default_block(x.shape, axis) or tuple(32 if i == axis else 1 for i in range(2))
    enc = Encoding(name, x.shape, block, scale_type="float16")
    try:
        parts = fmt.encode(x, enc)
    except FormatError as error:
        return f"{name:16} refused: {error}"
    encode = x.size / best(lambda: fmt.encode(x, enc)) / 1e6
    decode = x.size / best(lambda: fmt.to_numpy(parts, enc)) / 1e6
    stored = fmt.stored_bytes(enc) / x.size
    return f"{name:16} {block!s:>8} {stored:6.3f} {encode:8.0f} {decode:8.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("formats", nargs="*", default=sorted(Format.registry))
    parser.add_argument("--size", type=int, default=4096, help="side of the square matrix")
    parser.add_argument("--axis", type=int, default=0, choices=(0, 1), help="axis of the blocks")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    x = np.random.default_rng(0).standard_normal((args.size, args.size)).astype(np.float32)
    print(f"{'format':16} {'block':>8} {'B/value':>6} {'enc M/s':>8} {'dec M/s':>8}")
    for name in args.formats:
        print(measure(name, x, args.axis), flush=True)
