"""Distance of a time from what the machine allows.

    limit = max(operations / peak, bytes of weights and inputs / memory rate)

Operations are those of products and convolutions, two for a multiply-add, at the integer peak
where anything is quantized. The memory term counts where the weights are larger than the last
cache; the inputs (a decoder's caches) have left it then, too. Peaks are measured in the same run
(`peaks.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from jq import api
from jq.frontends.model import Model
from jq.frontends.tracing.naming import weight_of
from jq.ir.ops.dims import CONVOLUTION, DOT, work_of
from peers import peaks
from peers.build import Built
from peers.case import FLOAT, WEIGHTS4, Contender

PEAK = "peak"
BITS = {FLOAT: 32.0, WEIGHTS4: 4.5}  # of a weight, with the scale of a block of 32; else 8
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Need:
    """Operations of one call, how many weights take part in them, and the bytes of its inputs."""

    operations: int
    weights: int
    inputs: int


def need_of(model: Model) -> Need:
    program = api.trace(model).program
    weights = {
        name: program.weights[name].size
        for op in program.walk()
        if op.operation.name in (DOT, CONVOLUTION) and (name := weight_of(program, op))
    }
    inputs = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(model.example_inputs))
    return Need(work_of(program).total, sum(weights.values()), inputs)


def programs(folder: Path) -> list[Built]:
    """The kernels that measure the peaks, as contenders of every case."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_program(peak, folder / f"{peak.name}.vmfb") for peak in peaks.peaks()]


def _program(peak: peaks.Peak, path: Path) -> Built:
    if not path.exists():
        peaks.build(peak, path)
    contender = Contender(peak.what, "iree", PEAK, peak.what, lambda source, to: "", {})
    return Built(contender, path, peaks.inputs(peak), 1, {}, 0.0, 0, peak.operations)


def add_limits(rows: Sequence[dict[str, Any]], work: Mapping[str, Need]) -> None:
    """Adds `limit_ms`, `times_limit`, `best_times_limit` (the best time, as the peaks are) and,
    where memory decides, `memory_share` to every row.
    """
    rates = {
        (r["case"], r["threads"], r["contender"]): r["operations"] / r["best_ms"]
        for r in rows
        if r["kind"] == PEAK
    }
    for row in rows:
        if row["kind"] == PEAK or row["case"] not in work:
            continue
        here, need = (row["case"], row["threads"]), work[row["case"]]
        peak = "float" if row["kind"] == FLOAT else "integer"
        weights = need.weights * BITS.get(row["kind"], 8.0) / 8
        compute = need.operations / rates[*here, peak]
        size = weights + need.inputs if weights > last_cache() else 0.0
        memory = size / rates[*here, "memory"] if size else 0.0
        row["limit_ms"] = max(compute, memory)
        row["times_limit"] = row["median_ms"] / row["limit_ms"]
        row["best_times_limit"] = row["best_ms"] / row["limit_ms"]
        if memory:
            row["memory_share"] = memory / row["median_ms"]


def last_cache() -> int:
    """Bytes of the largest cache; 32 MiB where the system does not say."""
    sizes = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    units = {"K": 1 << 10, "M": 1 << 20}
    return max((int(s[:-1]) * units[s[-1]] for s in sizes if s[-1] in units), default=32 << 20)
