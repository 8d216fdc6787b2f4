"""Observed ranges of activations: mergeable, and saved as JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.base.system.files import as_path, read_text, write_text
from jq.planning.calibration import observer
from jq.planning.calibration.histogram import NUMPY_STATS
from jq.planning.calibration.shards import NO_SHARDS, Shards

SCHEMA = 2  # 1 did not say of which model they are
_MOST_OF_ALL = 1 << 24  # elements of all statistics, and half as many more as the file has letters
_TYPES, _MOST = ("int32", "int64", "float32", "float64"), 1 << 16  # of one statistic
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_AROUND_0 = observer.Range(-1.0, 1.0)


@dataclass(frozen=True)
class Ranges:
    """Observations at each site, `"<op name>:<operand number>"`.

    Attributes:
        sites: smallest and largest value.
        statistics: the method's statistics, which a merge needs; empty for `minmax`.
        smoothing: powers of two by weight, that activations were divided by channel by channel
            before they were observed (see `jq.passes.recovery.smooth`).
        model: digest of the float program that they were observed on (`program_digest`), or empty.
        shards: which parts of the data were seen, of how many; empty when it was all.
        outputs: the float model's, of the first call; not in a file.

    Example:
        ```python
        first, second = (jq.calibrate(model, shard=part) for part in ("1/2", "2/2"))
        ranges = first.merge(second)
        ```"""

    sites: Mapping[str, observer.Range] = field(default_factory=dict)
    samples: int = 0
    method: str = "minmax"
    statistics: Mapping[str, observer.Stats] = field(default_factory=dict)
    smoothing: Mapping[str, np.ndarray] = field(default_factory=dict)
    model: str = ""
    shards: Shards = NO_SHARDS
    outputs: tuple[np.ndarray, ...] = field(default=(), compare=False, repr=False)

    def __repr__(self) -> str:
        of = f"{len(self.sites)} tensors, {self.samples} samples, {self.method}"
        return f"<Ranges of {of}{f', shard {self.shards}' if self.shards.count else ''}>"

    def get(self, name: str, bits: int = 8, scheme: str = "asymmetric") -> observer.Range | None:
        """The range that the method chooses for a site; None when no sample reached it."""
        if name not in self.statistics:
            return self.sites.get(name)
        return observer.get_observer(self.method).range_of(self.statistics[name], bits, scheme)

    def merge(self, other: "Ranges") -> "Ranges":
        """The ranges as if both had been observed in one run, in any order.

        Counts, smallest and largest values are exact. Of `average` the sums of n samples are of
        float64: another order moves them by at most n * 2^-53 of the sum of their magnitudes.

        Raises:
            UserError: the methods differ, or the programs that were observed, or both have seen
                the same part of the data."""
        if self.model != other.model and self.model and other.model:
            raise UserError("ranges of different models cannot be merged")
        if self.method != other.method:
            raise UserError(f"ranges of {self.method} and of {other.method} cannot be merged")
        mine, theirs = self.smoothing, other.smoothing
        if mine.keys() != theirs.keys() or not all(
            np.array_equal(mine[k], theirs[k]) for k in mine
        ):
            hint = "calibrate the second time with ranges=... of the first, or all data at once"
            raise UserError("these ranges were observed after different smoothing", hint=hint)
        sites, statistics = dict(self.sites), dict(self.statistics)
        for name, r in other.sites.items():
            sites[name] = sites[name].merge(r) if name in sites else r
        for name, s in other.statistics.items():
            if name in statistics:
                s = observer.get_observer(self.method).combine(NUMPY_STATS, statistics[name], s)
            statistics[name] = s
        return replace(
            self,
            sites=sites,
            samples=self.samples + other.samples,
            statistics=statistics,
            model=self.model or other.model,
            shards=self.shards.merge(other.shards),
        )

    def check(self) -> None:
        """Raises `UserError` for ranges that nothing can be computed from."""
        observer.get_observer(self.method)
        for name, found in self.sites.items():
            observer.check_range(name, found)
        observer.check_statistics(self.method, self.sites, self.statistics)
        observer.check_smoothing(self.smoothing)

    def text(self) -> str:
        """The ranges as JSON."""
        data = {
            "schema": SCHEMA,
            "model": self.model,
            "method": self.method,
            "samples": self.samples,
            "sites": {k: [r.low, r.high] for k, r in sorted(self.sites.items())},
            "statistics": {
                k: [_to_json(a) for a in arrays] for k, arrays in sorted(self.statistics.items())
            },
        }
        if self.shards.count:
            data["shards"] = {"count": self.shards.count, "seen": sorted(self.shards.seen)}
        if self.smoothing:
            data["smoothing"] = {
                k: np.log2(v).astype(int).tolist() for k, v in sorted(self.smoothing.items())
            }
        return json.dumps(data, indent=1) + "\n"

    def save(self, path: str | Path) -> None:
        try:
            write_text(as_path(path), self.text())
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error

    @staticmethod
    def load(path: str | Path) -> "Ranges":
        return Ranges.of_text(read_text(as_path(path)), str(path))

    @staticmethod
    def of_text(text: str, path: str = "this") -> "Ranges":
        """The inverse of `text`; errors name `path`."""
        try:
            data = json.loads(text)
            if (schema := data["schema"]) != SCHEMA:
                what = f"{path}: ranges of schema {schema!r:.20}, this reads {SCHEMA}"
                raise UserError(what, hint="make them again with `jaxq calibrate`")
            sites = {k: observer.Range(*map(_number, ends)) for k, ends in data["sites"].items()}
            method, statistics = str(data["method"]), dict[str, observer.Stats]()
            if counted := data.get("statistics", {}):
                shapes = [n.shape for n in observer.get_observer(method).neutral()]
                for name, arrays in counted.items():
                    if [tuple(a["shape"]) for a in arrays] != shapes:
                        raise UserError(f"the statistics are not those of {method}", op=str(name))
                # A few letters of a file stand for thousands of zeros.
                if len(counted) * sum(map(math.prod, shapes)) > _MOST_OF_ALL + len(text) // 2:
                    raise ValueError(f"statistics of {len(counted)} tensors")
                statistics = {str(k): tuple(map(_from_json, v)) for k, v in counted.items()}
            with np.errstate(over="ignore"):  # and refused below
                logs = data.get("smoothing", {}).items()
                powers = {k: np.array([*map(_number, v)], np.float32) for k, v in logs}
                smoothing = {k: np.exp2(v) for k, v in powers.items()}
            model, samples = str(data["model"]), data["samples"]
            if type(samples) is not int or samples < bool(model):  # made by hand they are of none
                raise ValueError(f"it says that it is of {samples!r:.20} samples")
            shards = Shards.of_json(data.get("shards"))
            found = Ranges(sites, samples, method, statistics, smoothing, model, shards)
        except _MALFORMED as error:
            reason = f"no {error}" if isinstance(error, KeyError) else f"{error}"
            if isinstance(error, TypeError | AttributeError):  # Python's words for lists as objects
                reason = "a part of it is of another kind than `jaxq calibrate` writes"
            raise UserError(f"{path} is not a file of ranges: {reason:.200}") from error
        try:
            found.check()
        except UserError as error:
            raise UserError(f"{path}: {error.message}", op=error.op, hint=error.hint) from error
        return found


@dataclass(frozen=True, repr=False)
class AssumedRanges(Ranges):
    """The same range at every site, for a plan of which nobody looks at the scales."""

    everywhere: observer.Range = _AROUND_0

    def get(self, name: str, bits: int = 8, scheme: str = "asymmetric") -> observer.Range:
        return self.everywhere


def _to_json(array: np.ndarray) -> dict[str, Any]:
    """Flat values from the first to the last that is not zero, on one line."""
    flat = array.reshape(-1)
    used = np.flatnonzero(flat)
    first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
    kept = " ".join(str(v) for v in flat[first:last].tolist())
    return {"type": array.dtype.name, "shape": list(array.shape), "first": first, "values": kept}


def _from_json(data: Mapping[str, Any]) -> np.ndarray:
    shape, first = tuple(map(index, data["shape"])), index(data["first"])
    if data["type"] not in _TYPES or min(shape, default=0) < 0 or math.prod(shape) > _MOST:
        raise ValueError(f"no statistics are {data['type']!r:.20}{list(shape)!r:.40}")
    array = np.zeros(shape, np.dtype(data["type"]))
    values = np.array(data["values"].split(), array.dtype)
    flat = array.reshape(-1)
    if not 0 <= first <= first + len(values) <= len(flat):
        raise ValueError(f"{len(values)} values from {first} on do not fit into {list(shape)}")
    flat[first : first + len(values)] = values
    return array


def _number(value: Any) -> float:
    if type(value) not in (int, float):  # float() would take a text or a truth value
        raise ValueError(f"{value!r:.20} is no number")
    return float(value)


def site(op_name: str, operand: int) -> str:
    """The name under which ranges hold an operand: `encoder/dot_general:0` is the first one."""
    return f"{op_name}:{operand}"
