"""What was observed of each activation: mergeable, and saved as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jq.calibration.observer import get_observer
from jq.calibration.range import Range
from jq.calibration.stat_ops import NUMPY_STATS
from jq.errors import UserError

SCHEMA = 1
Statistics = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Ranges:
    """What was seen at each site, `"<op name>:<operand number>"`.

    Attributes:
        sites: smallest and largest value.
        statistics: the method's statistics, which a merge needs; empty for `minmax`.
        smoothing: powers of two by weight, that activations were divided by channel by channel
            before they were observed (see `jq.passes.recovery.smooth`).
    """

    sites: Mapping[str, Range] = field(default_factory=dict)
    samples: int = 0
    method: str = "minmax"
    statistics: Mapping[str, Statistics] = field(default_factory=dict)
    smoothing: Mapping[str, np.ndarray] = field(default_factory=dict)

    def get(self, name: str, bits: int = 8, scheme: str = "asymmetric") -> Range | None:
        """The range that the method chooses for a site; None when no sample reached it."""
        if name not in self.statistics:
            return self.sites.get(name)
        return get_observer(self.method).range_of(self.statistics[name], bits, scheme)

    def merge(self, other: Ranges) -> Ranges:
        """As if both had been observed in one run.

        Raises:
            UserError: the methods differ, or the programs that were observed.
        """
        if self.method != other.method:
            raise UserError(f"ranges of {self.method} and of {other.method} cannot be merged")
        if not _equal(self.smoothing, other.smoothing):
            raise UserError(
                "these ranges were observed after different smoothing",
                hint="calibrate the second time with ranges=... of the first, or all data at once",
            )
        sites, statistics = dict(self.sites), dict(self.statistics)
        for name, r in other.sites.items():
            sites[name] = sites[name].merge(r) if name in sites else r
        for name, s in other.statistics.items():
            if name in statistics:
                s = get_observer(self.method).combine(NUMPY_STATS, statistics[name], s)
            statistics[name] = s
        return Ranges(sites, self.samples + other.samples, self.method, statistics, self.smoothing)

    def text(self) -> str:
        """As JSON."""
        data = {
            "schema": SCHEMA,
            "method": self.method,
            "samples": self.samples,
            "sites": {k: [r.low, r.high] for k, r in sorted(self.sites.items())},
            "statistics": {
                k: [_to_json(a) for a in arrays] for k, arrays in sorted(self.statistics.items())
            },
        }
        if self.smoothing:
            data["smoothing"] = {
                k: np.log2(v).astype(int).tolist() for k, v in sorted(self.smoothing.items())
            }
        return json.dumps(data, indent=1) + "\n"

    def save(self, path: Path) -> None:
        temporary = path.with_name(path.name + ".part")
        try:
            temporary.write_text(self.text())
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UserError(f"cannot write {path}: {error.strerror}") from error

    @staticmethod
    def load(path: Path) -> Ranges:
        try:
            return Ranges.of_text(path.read_text(), str(path))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error

    @staticmethod
    def of_text(text: str, path: str = "this") -> Ranges:
        """The inverse of `text`; errors name `path`."""
        try:
            data = json.loads(text)
            if data["schema"] != SCHEMA:
                raise UserError(f"{path}: ranges of schema {data['schema']}, this reads {SCHEMA}")
            sites = {str(k): Range(float(a), float(b)) for k, (a, b) in data["sites"].items()}
            statistics = {
                str(k): tuple(_from_json(a) for a in arrays)
                for k, arrays in data.get("statistics", {}).items()
            }
            smoothing = {
                str(k): np.exp2(np.array(v, np.float32))
                for k, v in data.get("smoothing", {}).items()
            }
            return Ranges(sites, int(data["samples"]), str(data["method"]), statistics, smoothing)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is not a file of ranges: {error}") from error


def _equal(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def _to_json(array: np.ndarray) -> dict[str, Any]:
    """Flat values from the first to the last that is not zero, on one line."""
    flat = array.reshape(-1)
    used = np.flatnonzero(flat)
    first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
    kept = " ".join(str(v) for v in flat[first:last].tolist())
    return {"type": array.dtype.name, "shape": list(array.shape), "first": first, "values": kept}


def _from_json(data: Mapping[str, Any]) -> np.ndarray:
    array = np.zeros(tuple(data["shape"]), np.dtype(data["type"]))
    values = np.array(data["values"].split(), array.dtype)
    flat = array.reshape(-1)
    flat[data["first"] : data["first"] + len(values)] = values
    return array


def site(op_name: str, operand: int) -> str:
    return f"{op_name}:{operand}"
