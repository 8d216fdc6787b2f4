"""Weights that multiply outlier channels are scaled up before rounding, the channels down (AWQ).

    y = x W   ->   y = (x / s) (diag(s) W)

s = a^t, a the root of the mean square of each channel of x, t from a grid: what leaves the least
squared error in the products with the calibration data once diag(s) W is stored in its format (Lin
et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration", 2023,
equations 4 and 5, which has the mean of |x|). The weights after x take the division where it is
linear in them, else an op in front of the products does. The float program computes what it did but
for float rounding: s are no powers of two, so fine a choice is the point.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jq.formats import NUMPY, Encoding, get_format
from jq.ir import Program
from jq.passes.base import LOG, PassContext, Recovery, of_weight
from jq.passes.recovery._inputs import LARGEST, Use, gram_bytes, in_parts, planned_weights
from jq.passes.recovery._product_inputs import Channels, Input, find_inputs
from jq.passes.recovery._units import far_exponents
from jq.planning.moments.collect import Moments, collect
from jq.target.settings import FLOAT


@dataclass(frozen=True)
class Layer:
    """A product of an input: its weight, how that is stored, and the channel of each element."""

    use: Use
    weight: np.ndarray
    encoding: Encoding
    channels: Channels

    def error(self, s: np.ndarray, gram: np.ndarray, exponent: int) -> float:
        """tr(D^T H D) for D = (Q(diag(s) W) / s - W) / 2^exponent."""
        factor, fmt = s[self.channels], get_format(self.encoding.format)
        scaled = (self.weight * factor).astype(np.float32)
        with of_weight(self.use.matrix.name):
            stored = fmt.decode(NUMPY, fmt.encode(scaled, self.encoding), self.encoding)
        off = np.ldexp(np.asarray(stored) / factor - self.weight, -exponent)
        d = self.use.matrix.of(off.astype(np.float32))
        groups = self.use.matrix.groups
        parts = np.moveaxis(d.reshape(len(d), groups, -1), 1, 0)
        return float((parts * (gram.reshape(groups, len(d), len(d)) @ parts)).sum())


class Awq(Recovery):
    """Options:

    steps: values of t from 0 up to 1 (excluded).
    gain: how many times smaller the error must become, else an input is left alone.
    insert: also where nothing can take the division, at the price of an op.
    power: see `jq.planning.moments.collect.collect`.
    """

    steps: int = 20
    gain: float = 1.02
    insert: bool = True
    power: float = 0.5

    def wanted(self, program: Program, cx: PassContext) -> bool:
        return cx.settings.weights.format != FLOAT

    def recover(self, program: Program, cx: PassContext) -> bool:
        a = cx.settings.activations
        if a.format != FLOAT and a.mode == "static":
            self.skip(
                program, "activations are rounded with calibrated ranges; `smooth` weighs both"
            )
            return False
        encodings = planned_weights(program, cx)
        inputs = [i for i in find_inputs(program) if i.channels.keys() <= encodings.keys()]
        inputs = [i for i in inputs if self.insert or i.edits(program, np.full(i.width, 2.0))]
        gaining: list[tuple[Input, np.ndarray]] = []
        rows = [[u.matrix.permuted[: u.matrix.contracted] for u in i.uses(program)] for i in inputs]
        fitting = [
            i for i, r in zip(inputs, rows, strict=True) if max(map(math.prod, r)) <= LARGEST
        ]
        sizes = {
            n: sum(gram_bytes(u.matrix) for u in i.uses(program)) for n, i in enumerate(fitting)
        }
        parts = in_parts(sizes)
        for number, numbers in enumerate(parts):
            part = [fitting[n] for n in numbers]
            wanted = [use.wanted for i in part for use in i.uses(program)]
            seen = collect(program, cx.data or (), wanted, power=self.power, gains=cx.gains)
            for i in part:
                layers = _layers(program, i, encodings)
                s, gain = self._search(i, layers, [seen[x.use.wanted.name] for x in layers])
                LOG.info("awq: %s: error / %.2f", ", ".join(i.channels), gain)
                if gain >= self.gain:
                    gaining.append((i, s))
            cx.report((number + 1) / len(parts))
        for i, s in gaining:
            i.scale(program, s)
        if gaining:
            program.drop_dead()
        return bool(gaining)

    def _search(
        self, i: Input, layers: Sequence[Layer], moments: Sequence[Moments]
    ) -> tuple[np.ndarray, float]:
        """The best factors, and how many times smaller they make the error."""
        sizes = magnitudes(i, layers, moments)
        exponents = np.frexp([np.abs(m.gram).max(initial=0.0) for m in moments])[1]
        grams = [np.ldexp(m.gram, -exponents.max()).astype(np.float32) for m in moments]
        exponent = int(far_exponents(np.max([np.abs(x.weight).max(initial=0) for x in layers])))

        def error(s: np.ndarray) -> float:
            return sum(layer.error(s, h, exponent) for layer, h in zip(layers, grams, strict=True))

        one = np.ones(i.width)
        tried = [_normal(sizes**t) for t in np.arange(1, self.steps) / self.steps]
        before, after = error(one), [error(s) for s in tried]
        best = int(np.argmin(after)) if after else 0
        return (tried[best], before / max(after[best], 1e-300)) if tried else (one, 1.0)


def magnitudes(i: Input, layers: Sequence[Layer], moments: Sequence[Moments]) -> np.ndarray:
    """The root of the mean square of every channel; of a window of a convolution, of all of it."""
    total, count = np.zeros(i.width), np.zeros(i.width)
    for layer, m in zip(layers, moments, strict=True):
        matrix = layer.use.matrix
        ids = matrix.of(np.broadcast_to(layer.channels, matrix.shape))
        ids = ids.reshape(len(ids), matrix.groups, -1)[..., 0]  # [K, groups]
        squares = m.gram.reshape(matrix.groups, len(ids), len(ids)).diagonal(axis1=1, axis2=2).T
        total += np.bincount(ids.reshape(-1), squares.reshape(-1), i.width)
        count += np.bincount(ids.reshape(-1), np.full(ids.size, max(m.total, 1e-30)), i.width)
    mean = total / np.maximum(count, 1e-30)
    return np.sqrt(np.maximum(mean, 1e-12 * max(float(mean.max()), 1e-30)))


def _normal(s: np.ndarray) -> np.ndarray:
    """Around 1, as far up as down, and what float32 holds of it."""
    s = s / np.sqrt(s.max() * s.min())
    return np.clip(s, 1e-4, 1e4).astype(np.float32).astype(np.float64)


def _layers(program: Program, i: Input, encodings: Mapping[str, Encoding]) -> list[Layer]:
    return [
        Layer(u, np.asarray(program.weights[u.matrix.name], np.float32),
              encodings[u.matrix.name], i.channels[u.matrix.name])
        for u in i.uses(program)
    ]  # fmt: skip
