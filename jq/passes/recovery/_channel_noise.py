"""An estimate of the error that scaling channels leaves behind, from weights alone.

Inputs of the first layers count as independent, of variance 1; layers between pairs as linear; a
rounding error as step^2 / 12 (the 12 left out), independent of all others. So the variance of a
channel follows from the weights in front of it, and what an error in it comes to at the last
layer's results from the weights behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jq.formats import get_format
from jq.formats.affine import Affine
from jq.ir import Program
from jq.passes.recovery._pairs import Channels, Pair
from jq.settings import FLOAT, Settings

PEAK = 4.0  # the range of an activation over its standard deviation


class Noise:
    """Of the pairs of one program, in program order; `scale` goes on with scaled weights."""

    def __init__(self, program: Program, pairs: Sequence[Pair], settings: Settings) -> None:
        self.settings = settings
        names = {name for pair in pairs for name in (*pair.readers, *pair.makers)}
        self.extents = {n: np.abs(np.asarray(program.weights[n], np.float64)) for n in names}
        self._before = {n: (i, ids) for i, p in enumerate(pairs) for n, ids in p.readers.items()}
        self._behind = {n: (i, ids) for i, p in enumerate(pairs) for n, ids in p.makers.items()}
        self.variance = [np.ones(p.width) for p in pairs]
        self.gain = [np.ones(p.width) for p in pairs]
        for i, p in enumerate(pairs):
            total = [self._sums(p, n, self.extents[n] ** 2 * self._power(n)) for n in p.makers]
            self.variance[i] = np.sum(total, axis=0)
        for i, p in reversed(list(enumerate(pairs))):
            total = [self._sums(p, n, self.extents[n] ** 2 * self._weight(n)) for n in p.readers]
            self.gain[i] = np.sum(total, axis=0)

    def __call__(self, index: int, pair: Pair, s: np.ndarray) -> float:
        """The squared error that comes from rounding pair number `index`, scaled by s: what makes
        it, itself, and what reads it."""
        w, a = self.settings.weights, self.settings.activations
        shared, levels = w.granularity == "per-tensor", 2.0 ** (_bits(w.format) - 1)
        variance, gain, total = self.variance[index] / s**2, self.gain[index] * s**2, 0.0
        for name, ids in pair.makers.items():
            if shared:  # else a step follows its channel, and nothing changes
                scaled = self.extents[name] / np.append(s, 1.0)[ids]
                power = np.append(gain, 0.0)[ids] * self._power(name)
                power = np.broadcast_to(power, scaled.shape)
                total += float((scaled.max() / levels) ** 2 * power.sum())
        if a.format != FLOAT:
            step = PEAK * np.sqrt(variance.max()) / 2.0 ** _bits(a.format)
            total += float(step**2 * gain.sum())
        for name, ids in pair.readers.items():
            scaled = self.extents[name] * s[ids]
            axes = None if shared else pair.summed[name]
            step = scaled.max(axis=axes, keepdims=True) / levels
            total += float((step**2 * np.broadcast_to(
                variance[ids] * self._weight(name), scaled.shape)).sum())  # fmt: skip
        return total

    def even(self, pair: Pair) -> np.ndarray:
        """sqrt(r1 / r2); 1 for channels that nothing makes or reads."""
        made, read = (self._largest(pair, names) for names in (pair.makers, pair.readers))
        used = (made > 0) & (read > 0)
        return np.sqrt(np.where(used, made, 1) / np.where(used, read, 1))

    def scale(self, index: int, pair: Pair, s: np.ndarray) -> None:
        self.variance[index] = self.variance[index] / s**2
        self.gain[index] = self.gain[index] * s**2
        padded = np.append(s, 1.0)
        for name, ids in pair.readers.items():
            self.extents[name] = self.extents[name] * s[ids]
        for name, ids in pair.makers.items():
            self.extents[name] = self.extents[name] / padded[ids]

    def _power(self, name: str) -> np.ndarray | float:
        """The variance of what each element of a weight is multiplied by."""
        index, ids = self._before.get(name, (None, None))
        return 1.0 if index is None else self.variance[index][ids]

    def _weight(self, name: str) -> np.ndarray | float:
        """What an error in the result that each element of a weight adds to comes to."""
        index, ids = self._behind.get(name, (None, None))
        return 1.0 if index is None else np.append(self.gain[index], 0.0)[ids]

    def _largest(self, pair: Pair, weights: dict[str, Channels]) -> np.ndarray:
        found = np.zeros(pair.width + 1)  # the last: elements of no channel
        for name, ids in weights.items():
            extents = self.extents[name]
            np.maximum.at(found, np.broadcast_to(ids, extents.shape), extents)
        return found[:-1]

    def _sums(self, pair: Pair, name: str, values: np.ndarray) -> np.ndarray:
        """The sum over the elements of a weight in each channel."""
        channels = pair.makers[name] if name in pair.makers else pair.readers[name]
        ids = np.broadcast_to(channels, values.shape) % (pair.width + 1)
        return np.bincount(ids.reshape(-1), values.reshape(-1), pair.width + 1)[:-1]


def _bits(name: str) -> int:
    fmt = get_format(name)
    return fmt.bits if isinstance(fmt, Affine) else 8
