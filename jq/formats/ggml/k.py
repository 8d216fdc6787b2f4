"""ggml k-quants: super-blocks of 256 values whose sub-block scales are themselves quantized."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from jq.formats.arrays import NUMPY, Array, ArrayOps
from jq.formats.base import Encoding, Levels, Parts
from jq.formats.ggml import GgmlFormat, Triple, reciprocal
from jq.formats.ggml.bits import Numbers, cut, half, half_bytes, round_to_half


def scaled(ops: ArrayOps, d: Array, factors: Array) -> Array:
    """f16 super-block scale times small integer factors: f32 [..., 1] x i8 [..., n]. Exact."""
    shape = ops.shape(factors)
    wide = ops.broadcast(ops.reshape(d, shape[:-1]), shape, range(len(shape) - 1))
    return ops.mul(wide, ops.convert(factors, np.float32))


Level = tuple[Array, Array]  # i8 factors, one a run, and the f16 scale of the super-block as f32


class KQuant(GgmlFormat):
    block = 256
    bits: ClassVar[int]
    factor_bits: ClassVar[int]
    trials: ClassVar[np.ndarray]  # offsets of the scales that a search tries

    @abstractmethod
    def levels(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Level, Level | None]:
        """Codes i8 [..., 256]; factors i8 [..., 256 / run] and scale f32 [..., 1] of what
        multiplies them, and of what is subtracted."""

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        codes, (factors, d), minima = self.levels(ops, blocks)
        offset = None if minima is None else ops.mul(scaled(ops, minima[1], minima[0]), -1.0)
        return codes, scaled(ops, d, factors), offset

    def integer_levels(
        self, parts: Parts, enc: Encoding
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray] | None]:
        """`integer_parts` with stored scales: `value = code * (factor * scale) + factor' * scale'`.

        Factors are i8 with an entry for each run along the blocked axis, scales f32 (exact in f16)
        with one for each super-block."""
        codes, scale, minima = self.levels(NUMPY, parts["blocks"])

        def logical(x: Array) -> np.ndarray:
            return np.asarray(self._logical(NUMPY, x, enc))

        low = None if minima is None else (-logical(minima[0]), logical(minima[1]))
        return logical(codes), (logical(scale[0]), logical(scale[1])), low

    def block_levels(self, parts: Parts, enc: Encoding) -> Levels:
        return *self.integer_levels(parts, enc), None

    def runs(self, x: np.ndarray) -> np.ndarray:
        """[n, 256] -> [run, n * 256 / run], the layout of the searches."""
        return np.ascontiguousarray(x.reshape(-1, self.run).T)

    def weights(self, x: np.ndarray, importance: np.ndarray | None) -> np.ndarray | None:
        """Weights of errors in the searches: as in ggml, larger where the value itself is large."""
        if importance is None:
            return None
        spread = 2 * np.square(x).mean(axis=1, keepdims=True)
        return self.runs(importance * np.sqrt(spread + np.square(x)))

    def signed_factors(self, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scales f32 [n, runs] as f16 d times integers, both f32, the least for the largest."""
        most = 1 << (self.factor_bits - 1)
        largest = np.take_along_axis(scale, np.abs(scale).argmax(axis=1)[:, None], axis=1)
        d = round_to_half(largest / np.float32(-most))
        return d, np.clip(np.rint(scale * reciprocal(d)), -most, most - 1)


# Scale searches of the k-quants: least squares over a range of candidate scales.
#
# Rounding to a trial scale gives codes; for fixed codes the best scale (and minimum) has a
# closed form; the trial with the least squared error wins. These are the searches of ggml's
# `make_qkx2_quants` and `make_qx_quants` with equal weights, so that they minimize the RMSE; or
# with weights for the values [run, n], so that they minimize the weighted one.
# Sub-blocks lie along axis 0, [run, n]: sums over it run along contiguous rows.
def fit_affine(
    x: np.ndarray, top: int, trials: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """x ~ scale * code + minimum, codes 0..top, minimum <= 0.

    x: f32 [run, n]; each trial t rounds to the scale range / (top + t). Returns two f32 [n]."""
    low = np.minimum(x.min(axis=0), 0)
    span = x.max(axis=0) - low
    y, count = x - low, np.float32(len(x)) if weights is None else weights.sum(axis=0)
    wy = y if weights is None else y * weights
    sum_y = wy.sum(axis=0)
    scale, shift, best = np.zeros_like(low), np.zeros_like(low), np.zeros_like(low)
    for t in trials:
        codes = y * (np.float32(top + t) * reciprocal(span))
        np.minimum(np.rint(codes, out=codes), top, out=codes)
        sum_cy, least = (codes * wy).sum(axis=0), np.float32(0)
        if weights is None:
            sum_c = codes.sum(axis=0)
            sum_cc = np.square(codes, out=codes).sum(axis=0)
        else:
            sum_c, sum_cc = (codes * weights).sum(axis=0), (codes * codes * weights).sum(axis=0)
            least = np.float32(1e-6) * count * sum_cc  # no sum of integers: it is rounded
        # Normal equations of y ~ s * codes + b. Where b + low > 0 the bound itself is best, and
        # where all codes are equal (the determinant, a sum of integers, is exactly 0) it will do.
        determinant = count * sum_cc - sum_c * sum_c
        inverse = reciprocal(determinant)
        s = (count * sum_cy - sum_y * sum_c) * inverse
        b = (sum_cc * sum_y - sum_c * sum_cy) * inverse
        bound = (b > -low) | (determinant <= least)
        b = np.where(bound, -low, b)
        s = np.where(bound, (sum_cy + low * sum_c) * reciprocal(sum_cc), s)
        gain = s * (2 * sum_cy - s * sum_cc) + b * (2 * sum_y - 2 * s * sum_c - b * count)
        better = gain > best
        scale, shift, best = (
            np.where(better, new, old) for new, old in ((s, scale), (b, shift), (gain, best))
        )
    return scale, low + shift


class AffineK(KQuant):
    """d * factor * code - dmin * factor', factors of `factor_bits` bits.

    `pairs_at`: first byte and end of the factors of both kinds; `halves`: d and dmin."""

    pairs_at: ClassVar[tuple[int, int]]

    @property
    def limits(self) -> tuple[int, int]:
        return 0, (1 << self.bits) - 1

    @abstractmethod
    def pairs(self, ops: ArrayOps, stored: Array) -> tuple[Array, Array]:
        """The bytes of the factors -> those of scales and of minima, i8 [..., runs] both."""

    @abstractmethod
    def put_pairs(self, factors: np.ndarray, minima: np.ndarray) -> np.ndarray:
        """The opposite: u8 [n, runs] both -> u8 [n, bytes]."""

    def levels(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Level, Level | None]:
        factors, minima = self.pairs(ops, cut(ops, blocks, *self.pairs_at))
        d, dmin = (half(ops, cut(ops, blocks, at, at + 2)) for at in self.halves)
        return self.numbers.read(ops, blocks), (factors, d), (minima, dmin)

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        top = (1 << self.bits) - 1
        weights = self.weights(x, importance)
        scale, low = fit_affine(self.runs(x), top, self.trials, weights)
        d, factors = self._factors(scale, len(x))
        dmin, minima = self._factors(-low, len(x))
        sub = x.reshape(len(x), -1, self.run)
        codes = (sub + (dmin * minima)[..., None]) * reciprocal(d * factors)[..., None]
        codes = np.clip(np.rint(codes), 0, top).astype(np.uint8).reshape(x.shape)
        pairs = self.put_pairs(factors.astype(np.uint8), minima.astype(np.uint8))
        out[:, slice(*self.pairs_at)] = pairs
        for at, value in zip(self.halves, (d, dmin), strict=True):
            out[:, at : at + 2] = half_bytes(value)
        self.put(codes, out)

    def _factors(self, values: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Values >= 0 of each super-block as f16 d times integers; d is rounded first."""
        values, top = values.reshape(n, -1), np.float32((1 << self.factor_bits) - 1)
        d = round_to_half(values.max(axis=1, keepdims=True) / top)
        return d, np.clip(np.rint(values * reciprocal(d)), 0, top)


class Q2_K(AffineK):
    name = "q2_k"
    description = "ggml Q2_K: 2 bits, a 4-bit scale and minimum per 16 values"
    bytes, run, bits, factor_bits, pairs_at, halves = 84, 16, 2, 4, (0, 16), (80, 82)
    trials, numbers = np.arange(-10, 11) / 10, Numbers(((16, 80, 32, 2),))

    def pairs(self, ops: ArrayOps, stored: Array) -> tuple[Array, Array]:
        return ops.bit_and(stored, 0x0F), ops.bit_and(ops.shift_right(stored, 4), 0x0F)

    def put_pairs(self, factors: np.ndarray, minima: np.ndarray) -> np.ndarray:
        return factors | minima << 4


class Q4_K(AffineK):
    """The first four of each kind of factors sit in the low six bits of bytes 0..3 and 4..7; the
    others have their low nibbles in bytes 8..11, their top bits in what bytes 0..7 leave free."""

    name = "q4_k"
    description = "ggml Q4_K: 4 bits, a 6-bit scale and minimum per 32 values"
    bytes, bits, factor_bits, pairs_at, halves = 144, 4, 6, (4, 16), (0, 2)
    trials, numbers = np.arange(-8, 5) / 4, Numbers(((16, 144, 32, 4),))

    def pairs(self, ops: ArrayOps, stored: Array) -> tuple[Array, Array]:
        low, high = cut(ops, stored, 0, 8), cut(ops, stored, 8, 12)
        first = ops.bit_and(low, 0x3F)
        top = ops.bit_and(ops.shift_right(low, 2), 0x30)
        axis = len(ops.shape(stored)) - 1
        scales = ops.bit_or(ops.bit_and(high, 0x0F), cut(ops, top, 0, 4))
        minima = ops.bit_or(ops.bit_and(ops.shift_right(high, 4), 0x0F), cut(ops, top, 4, 8))
        return (
            ops.concatenate([cut(ops, first, 0, 4), scales], axis),
            ops.concatenate([cut(ops, first, 4, 8), minima], axis),
        )

    def put_pairs(self, factors: np.ndarray, minima: np.ndarray) -> np.ndarray:
        low = [each[:, :4] | each[:, 4:] >> 4 << 6 for each in (factors, minima)]
        return np.concatenate([*low, factors[:, 4:] & 15 | minima[:, 4:] << 4], axis=1)


class Q5_K(Q4_K):
    name = "q5_k"
    description = "ggml Q5_K: 5 bits, a 6-bit scale and minimum per 32 values"
    bytes, bits = 176, 5
    trials, numbers = np.arange(-12, 5) / 4, Numbers(((48, 176, 32, 4), (16, 48, 32, 1)))
