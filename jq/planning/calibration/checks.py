"""Checks of ranges before anything is computed from them: a file may hold anything."""

import math
from collections.abc import Mapping

import numpy as np

from jq.base.errors import UserError
from jq.planning.calibration import histogram
from jq.planning.calibration.observer import HistogramObserver, Range, get_observer

Statistics = tuple[np.ndarray, ...]
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
    method: str, sites: Mapping[str, Range], statistics: Mapping[str, Statistics]
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
