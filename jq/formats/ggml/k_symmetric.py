"""Formats Q3_K and Q6_K: super-blocks whose blocks have a scale and no minimum."""

from typing import ClassVar

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.ggml import reciprocal
from jq.formats.ggml.bits import Numbers, cut, half, half_bytes
from jq.formats.ggml.k import KQuant, Level


def fit_symmetric(
    x: np.ndarray, half: int, trials: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """`fit_affine` without a minimum: x ~ scale * code, codes -half..half-1, the value of
    largest magnitude near -half.

    x: f32 [run, n]; each trial t rounds to the scale largest / -(half + t). Returns f32 [n]."""
    high, low = x.max(axis=0), x.min(axis=0)
    largest = np.where(high > -low, high, low)
    scale, best = np.zeros_like(high), np.zeros_like(high)
    for t in trials:
        codes = x * (np.float32(-(half + t)) * reciprocal(largest))
        np.clip(np.rint(codes, out=codes), -half, half - 1, out=codes)
        if weights is None:
            sum_cx = (codes * x).sum(axis=0)
            s = sum_cx * reciprocal(np.square(codes, out=codes).sum(axis=0))
        else:
            weighted = codes * weights
            sum_cx = (weighted * x).sum(axis=0)
            s = sum_cx * reciprocal((weighted * codes).sum(axis=0))
        better = s * sum_cx > best
        scale, best = np.where(better, s, scale), np.where(better, s * sum_cx, best)
    return scale


class SignedFactors(KQuant):
    """d * factor * code; codes and factors have signs."""

    factors: ClassVar[Numbers]

    @property
    def zero(self) -> int:
        """The number that a factor of 0 is stored as."""
        return 0 if self.factor_bits == 8 else 1 << (self.factor_bits - 1)

    def levels(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Level, Level | None]:
        factors = self.factors.read(ops, blocks)
        factors = ops.sub(factors, self.zero) if self.zero else factors
        d = half(ops, cut(ops, blocks, at := self.halves[0], at + 2))
        return self.codes(ops, blocks), (factors, d), None

    def codes(self, ops: ArrayOps, blocks: Array) -> Array:
        return ops.sub(self.numbers.read(ops, blocks), -self.limits[0])

    def write_factors(self, d: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:
        """Writes f32 [n, 1] and [n, runs]."""
        out[:, (at := self.halves[0]) : at + 2] = half_bytes(d)
        self.factors.write((factors + self.zero).astype(np.int16).astype(np.uint8), out)


class SymmetricK(SignedFactors):
    @property
    def limits(self) -> tuple[int, int]:
        half = 1 << (self.bits - 1)
        return -half, half - 1

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        half = 1 << (self.bits - 1)
        scale = fit_symmetric(self.runs(x), half, self.trials, self.weights(x, importance))
        d, factors = self.signed_factors(scale.reshape(len(x), -1))
        codes = x.reshape(len(x), -1, self.run) * reciprocal(d * factors)[..., None]
        codes = np.clip(np.rint(codes), -half, half - 1) + np.float32(half)
        self.write_factors(d, factors, out)
        self.put(codes.astype(np.uint8).reshape(x.shape), out)


class Q3_K(SymmetricK):
    name = "q3_k"
    description = "ggml Q3_K: 3 bits, a 6-bit scale per 16 values"
    bytes, run, bits, factor_bits, halves = 110, 16, 3, 6, (108,)
    numbers = Numbers(((32, 96, 32, 2), (0, 32, 32, 1)))
    factors = Numbers(((96, 104, 8, 4), (104, 108, 4, 2)))
    trials = np.arange(-4, 5) / 4


class Q6_K(SymmetricK):
    name = "q6_k"
    description = "ggml Q6_K: 6 bits, an 8-bit scale per 16 values"
    bytes, run, bits, factor_bits, halves = 210, 16, 6, 8, (208,)
    numbers = Numbers(((0, 128, 64, 4), (128, 192, 32, 2)))
    factors = Numbers(((192, 208, 16, 8),))
    trials = np.arange(-12, 5) / 4
