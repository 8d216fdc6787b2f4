"""Channels between two layers are scaled so that the weights of both use their ranges alike.

    y = W2 f(W1 x + b)   ->   y = (W2 diag(s)) f(diag(1/s) W1 x + b / s)

for f that is linear or positively homogeneous (ReLU, pooling, a depthwise convolution), with
s_i = sqrt(r1_i / r2_i)^t, r1_i and r2_i the largest absolute weights that make and that read
channel i. t = 1 is the method of Nagel et al., "Data-Free Quantization Through Weight Equalization
and Bias Correction", 2019, section 4.1; here the strength is what promises least error, as even
weights may leave the activations between them uneven (`_channel_noise`). Repeated over
all pairs until none moves. No data are needed. The factors are powers of two: the float program
computes what it did, to the bit.

Pairs are found by dataflow, see `_pairs`. Meant for weights with one scale a tensor: with
one for each output channel, W1 has nothing to gain.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from jq.formats import get_format
from jq.formats.affine import Affine
from jq.ir import Program
from jq.passes.base import PassContext, Recovery
from jq.passes.recovery._channel_noise import Noise
from jq.passes.recovery._pairs import Pair, find_pairs
from jq.passes.recovery._producers import edits_for
from jq.settings import FLOAT

LOG = logging.getLogger("jq")
LIMIT = 20  # of a factor: two to this power


@dataclass(frozen=True)
class Equalize(Recovery):
    """Options:

    strengths: that are tried.
    gain: how many times smaller the estimated error must be, else a pair is left as it is.
    sweeps: how often at most all pairs are looked at.
    """

    name = "equalize"
    needs_data = False
    strengths: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    gain: float = 1.1
    sweeps: int = 10

    def wanted(self, cx: PassContext) -> bool:
        chosen = cx.settings.weights.format
        return chosen != FLOAT and isinstance(get_format(chosen), Affine)

    def recover(self, program: Program, cx: PassContext) -> bool:
        pairs = find_pairs(program)
        if not pairs:
            self.skip(cx, "no two layers have only linear steps or ReLU between them")
            return False
        noise = Noise(program, pairs, cx.settings)
        factors = [np.ones(pair.width) for pair in pairs]
        for _ in range(self.sweeps):
            moved = False
            for i, pair in enumerate(pairs):
                s = self._best(i, pair, noise)
                factors[i] = factors[i] * s
                noise.scale(i, pair, s)
                moved |= bool((s != 1).any())
            if not moved:
                break
        for pair, s in zip(pairs, factors, strict=True):
            LOG.info("equalize: %s: factors %g to %g", ", ".join(pair.makers), s.min(), s.max())
            if (s != 1).any():
                _apply(program, pair, s)
        program.drop_dead()
        return any((s != 1).any() for s in factors)

    def _best(self, index: int, pair: Pair, noise: Noise) -> np.ndarray:
        one, even = np.ones(pair.width), noise.even(pair)
        tried = [_power_of_two(even**t) for t in self.strengths]
        error, best = min(((noise(index, pair, s), i) for i, s in enumerate(tried)), default=(0, 0))
        return tried[best] if noise(index, pair, one) > self.gain * error else one


def _power_of_two(s: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp2(np.clip(np.rint(np.log2(s)), -LIMIT, LIMIT)))


def _apply(program: Program, pair: Pair, s: np.ndarray) -> None:
    edits = edits_for(program, pair.value, pair.along(1 / s), pair.uses)
    assert edits is not None  # as when it was found
    for name, channels in pair.readers.items():
        old = np.asarray(program.weights[name])
        program.weights[name] = (old * s[channels]).astype(old.dtype)
    edits.apply(next(iter(pair.makers)))
