"""The average over samples of each sample's smallest and largest value.

ONNX Runtime calls it a moving average. It is the plain one here: exponential weights would
make the range depend on the order of the samples.
"""

import numpy as np

from jq.formats.arrays import Array
from jq.planning.calibration.observer import Observer, Stats
from jq.planning.calibration.range import Range
from jq.planning.calibration.stat_ops import StatOps


class Average(Observer):
    """Sums of the extremes and how many there were, and the extremes of all."""

    name = "average"

    def neutral(self) -> Stats:
        zero = np.zeros((), np.float32)
        return zero, zero, zero, np.array(np.inf, np.float32), np.array(-np.inf, np.float32)

    def measure(self, ops: StatOps, x: Array) -> tuple[Array, ...]:
        axes = range(len(ops.shape(x)))
        x = ops.convert(x, np.float32)
        low = ops.reshape(ops.reduce_min(x, axes), ())
        high = ops.reshape(ops.reduce_max(x, axes), ())
        return low, high, ops.constant(np.ones((), np.float32)), low, high

    def combine(
        self, ops: StatOps, a: tuple[Array, ...], b: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        sums = (ops.add(x, y) for x, y in zip(a[:3], b[:3], strict=True))
        return *sums, ops.minimum(a[3], b[3]), ops.maximum(a[4], b[4])

    def extremes(self, stats: Stats) -> tuple[float, float]:
        return float(stats[3]), float(stats[4])

    def range_of(self, stats: Stats, bits: int = 8, scheme: str = "asymmetric") -> Range:
        low, high, count = (float(v) for v in stats[:3])
        return Range(low / count, high / count)
