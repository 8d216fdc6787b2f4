"""Observers: what is measured of an activation inside the program, and what range follows.

An observer computes a few small arrays of a tensor (`measure`, as ops of the program). They
are combined over the iterations of a loop and over samples by `combine`, in the program and
in NumPy alike, so memory does not grow with the number of samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from jq.calibrate.ranges import Range
from jq.errors import InternalError, UserError
from jq.formats import ArrayOps, NumpyOps
from jq.formats.arrays import Array

Stats = tuple[np.ndarray, ...]


class Observer(ABC):
    """One calibration method. Subclasses define `name` and register themselves."""

    name: ClassVar[str] = ""
    registry: ClassVar[dict[str, Observer]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.name in Observer.registry:
            raise InternalError(f"two observers are called {cls.name!r}")
        Observer.registry[cls.name] = cls()

    @abstractmethod
    def neutral(self) -> Stats:
        """The statistics of no data at all."""

    @abstractmethod
    def measure(self, ops: ArrayOps, x: Array) -> tuple[Array, ...]:
        """Statistics of one tensor."""

    @abstractmethod
    def combine(
        self, ops: ArrayOps, a: tuple[Array, ...], b: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        """Statistics of the data of both."""

    @abstractmethod
    def range_of(self, stats: Stats) -> Range:
        """The range to quantize with."""


class MinMax(Observer):
    """The smallest and the largest value ever seen."""

    name = "minmax"

    def neutral(self) -> Stats:
        return np.array(np.inf, np.float32), np.array(-np.inf, np.float32)

    def measure(self, ops: ArrayOps, x: Array) -> tuple[Array, ...]:
        axes = range(len(ops.shape(x)))
        x = ops.convert(x, np.float32)
        low, high = ops.reduce_min(x, axes), ops.reduce_max(x, axes)
        return ops.reshape(low, ()), ops.reshape(high, ())

    def combine(
        self, ops: ArrayOps, a: tuple[Array, ...], b: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        return ops.minimum(a[0], b[0]), ops.maximum(a[1], b[1])

    def range_of(self, stats: Stats) -> Range:
        return Range(float(stats[0]), float(stats[1]))


def get_observer(name: str) -> Observer:
    try:
        return Observer.registry[name]
    except KeyError:
        known = ", ".join(sorted(Observer.registry))
        raise UserError(f"unknown calibration method {name!r}", hint=f"known: {known}") from None


__all__ = ["MinMax", "NumpyOps", "Observer", "Stats", "get_observer"]
