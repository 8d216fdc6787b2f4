"""Observers: what is measured of an activation inside the program, and what range follows.

An observer computes a few small arrays of a tensor (`measure`, as ops of the program). They are
combined over the iterations of a loop and over samples by `combine`, in the program as in NumPy, so
memory does not grow with samples. A method is a class in this folder, found by being defined."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jq.base.errors import UserError, check_known
from jq.base.registry import import_all, register
from jq.formats.arrays import Array
from jq.planning.calibration import histogram
from jq.planning.calibration.histogram import Histogram, StatOps


@dataclass(frozen=True)
class Range:
    """Smallest and largest value; `low <= high`, both finite."""

    low: float
    high: float

    def merge(self, other: "Range") -> "Range":
        return Range(min(self.low, other.low), max(self.high, other.high))


Stats = tuple[np.ndarray, ...]
Parts = tuple[Array, ...]  # of statistics, in a program or in NumPy


class Observer(ABC):
    """One calibration method. Subclasses define `name` and register themselves."""

    name: ClassVar[str] = ""
    registry: "ClassVar[dict[str, Observer]]" = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.name:
            register(Observer.registry, "calibration method", cls.name, cls())

    @abstractmethod
    def neutral(self) -> Stats:
        """The statistics of no data at all."""

    @abstractmethod
    def measure(self, ops: StatOps, x: Array) -> Parts:
        """Statistics of one tensor."""

    @abstractmethod
    def combine(self, ops: StatOps, a: Parts, b: Parts) -> Parts:
        """Statistics of the data of both. Component i depends on components i alone."""

    @abstractmethod
    def extremes(self, stats: Stats) -> tuple[float, float]:
        """Smallest and largest value seen; not finite when the data were not."""

    @abstractmethod
    def range_of(self, stats: Stats, bits: int = 8, scheme: str = "asymmetric") -> Range:
        """The range to quantize with, for integers of `bits` bits in a scheme."""


class HistogramObserver(Observer):
    """A method that chooses from a histogram; subclasses say how."""

    def neutral(self) -> Stats:
        return (histogram.neutral(),)

    def measure(self, ops: StatOps, x: Array) -> Parts:
        return (histogram.measure(ops, x),)

    def combine(self, ops: StatOps, a: Parts, b: Parts) -> Parts:
        return (histogram.combine(ops, a[0], b[0]),)

    def extremes(self, stats: Stats) -> tuple[float, float]:
        h = Histogram.of(stats[0])
        return h.low, h.high

    def range_of(self, stats: Stats, bits: int = 8, scheme: str = "asymmetric") -> Range:
        h = Histogram.of(stats[0])
        if h.low == h.high:
            return Range(h.low, h.high)
        low, high = self.choose(h, bits, scheme == "symmetric")
        return Range(max(low, h.low), min(high, h.high))

    @abstractmethod
    def choose(self, h: Histogram, bits: int, symmetric: bool) -> tuple[float, float]:
        """Low and high end; what lies outside of the data is cut off afterwards."""


def observer_names() -> list[str]:
    """The calibration methods that there are."""
    import_all("jq.planning.calibration")
    return sorted(Observer.registry)


def get_observer(name: str) -> Observer:
    """The calibration method of this name.

    Raises:
        UserError: there is none; the hint lists those that there are."""
    return Observer.registry[check_known("calibration method", name, observer_names())]


def not_finite(sample: int, name: str, origin: str = "calibration data") -> UserError:
    """The error of an activation that has no range."""
    return UserError(
        f"NaN or infinity in sample {sample} of the {origin}, or made of it",
        op=name,
        hint="leave the sample out, or let the model mask with large finite numbers",
    )


LARGEST = float(np.finfo(np.float32).max)


def check_range(name: str, found: Range) -> None:
    """Both ends are numbers that float32 has, and in order."""
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        raise UserError(f"the range [{found.low}, {found.high}] is not finite", op=name)
    if max(abs(found.low), abs(found.high)) > LARGEST:
        raise UserError(f"the range [{found.low}, {found.high}] exceeds float32", op=name)
    if found.low > found.high:
        raise UserError(f"the range [{found.low}, {found.high}] is empty", op=name)


def check_statistics(
    method: str, sites: Mapping[str, Range], statistics: Mapping[str, Stats]
) -> None:
    """The statistics are of this method, count something, and have the extremes of their site."""
    observer = get_observer(method)
    neutral = observer.neutral()
    for name, arrays in statistics.items():
        if name not in sites:
            raise UserError("there are statistics without a range", op=name)
        kinds = [(a.dtype.kind, a.shape) for a in arrays]
        if kinds != [(n.dtype.kind, n.shape) for n in neutral]:
            raise UserError(f"the statistics are not those of {method}", op=name)
        if isinstance(observer, HistogramObserver):
            _check_histogram(name, arrays[0])
        elif not all(np.isfinite(a).all() for a in arrays) or arrays[2] <= 0:
            raise UserError("the statistics are not finite", op=name)
        if observer.extremes(arrays) != (sites[name].low, sites[name].high):
            raise UserError("the statistics and the range differ", op=name)


def _check_histogram(name: str, packed: np.ndarray) -> None:
    width, counts = int(packed[0]), packed[histogram.HEAD :]
    limits = np.iinfo(np.int32)
    if not histogram.LOWEST <= width <= histogram.HIGHEST:
        raise UserError(f"its histogram has bins of 2^{width}", op=name)
    if (counts < 0).any() or not counts.any() or (packed[1:3] > limits.max).any():
        raise UserError("its histogram counts nothing, or less", op=name)


def check_smoothing(smoothing: Mapping[str, np.ndarray]) -> None:
    """Factors are finite powers of two, one a channel."""
    for name, factors in smoothing.items():
        if factors.ndim != 1 or not (np.isfinite(factors).all() and (factors > 0).all()):
            raise UserError("the smoothing is not one power of two a channel", op=name)
