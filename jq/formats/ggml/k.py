"""ggml k-quants: super-blocks of 256 values whose sub-block scales are themselves quantized."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from jq.formats.arrays import NUMPY, Array, ArrayOps
from jq.formats.base import Encoding, Levels, Parts
from jq.formats.ggml import GgmlFormat, Triple, reciprocal
from jq.formats.ggml.bits import (
    cut,
    fields,
    fit_affine,
    full,
    half,
    half_bytes,
    mask,
    pack,
    round_to_half,
    shift_left,
    shift_right,
)


def scaled(ops: ArrayOps, d: Array, factors: Array) -> Array:
    """f16 super-block scale times small integer factors: f32 [..., 1] x i8 [..., n]. Exact."""
    shape = ops.shape(factors)
    wide = ops.broadcast(ops.reshape(d, shape[:-1]), shape, range(len(shape) - 1))
    return ops.mul(wide, ops.convert(factors, np.float32))


def negated(ops: ArrayOps, x: Array) -> Array:
    """`-x` of floats of any shape, exact; the array protocol has no negation."""
    return ops.mul(x, full(ops, x, -1.0))


def six_bit_pairs(ops: ArrayOps, s: Array) -> tuple[Array, Array]:
    """Scales and minima of q4_k and q5_k: i8 [..., 12] -> two i8 [..., 8].

    The first four of each sit in the low six bits of bytes 0..3 and 4..7; the others have
    their low nibbles in bytes 8..11 and their top bits in what bytes 0..7 leave free.
    """
    low, high = cut(ops, s, 0, 8), cut(ops, s, 8, 12)
    first = mask(ops, low, 0x3F)
    top = mask(ops, shift_right(ops, low, 2), 0x30)
    axis = len(ops.shape(s)) - 1
    scales = ops.bit_or(mask(ops, high, 0x0F), cut(ops, top, 0, 4))
    minima = ops.bit_or(mask(ops, shift_right(ops, high, 4), 0x0F), cut(ops, top, 4, 8))
    return (
        ops.concatenate([cut(ops, first, 0, 4), scales], axis),
        ops.concatenate([cut(ops, first, 4, 8), minima], axis),
    )


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
        offset = None if minima is None else negated(ops, scaled(ops, minima[1], minima[0]))
        return codes, scaled(ops, d, factors), offset

    def integer_levels(
        self, parts: Parts, enc: Encoding
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray] | None]:
        """`integer_parts` with scales as they are stored: `value = code * (factor * scale) +
        factor' * scale'`.

        Factors are i8 with an entry for each run along the blocked axis, scales f32 (exact in
        f16) with one for each super-block.
        """
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
        """Scales f32 [n, runs] as f16 d times integers, both f32; the one of largest magnitude is
        the least integer."""
        most = 1 << (self.factor_bits - 1)
        largest = np.take_along_axis(scale, np.abs(scale).argmax(axis=1)[:, None], axis=1)
        d = round_to_half(largest / np.float32(-most))
        return d, np.clip(np.rint(scale * reciprocal(d)), -most, most - 1)


class AffineK(KQuant):
    """d * factor * code - dmin * factor', factors of `factor_bits` bits."""

    @property
    def limits(self) -> tuple[int, int]:
        return 0, (1 << self.bits) - 1

    def quantize(self, x: np.ndarray, importance: np.ndarray | None) -> tuple[np.ndarray, ...]:
        """Codes u8 [n, 256], factors and minima u8 [n, runs], d and dmin f32 [n, 1]."""
        top = (1 << self.bits) - 1
        weights = self.weights(x, importance)
        scale, low = fit_affine(self.runs(x), top, self.trials, weights)
        d, factors = self._factors(scale, len(x))
        dmin, minima = self._factors(-low, len(x))
        sub = x.reshape(len(x), -1, self.run)
        codes = (sub + (dmin * minima)[..., None]) * reciprocal(d * factors)[..., None]
        codes = np.clip(np.rint(codes), 0, top).astype(np.uint8).reshape(x.shape)
        return codes, factors.astype(np.uint8), minima.astype(np.uint8), d, dmin

    def _factors(self, values: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Values >= 0 of each super-block as f16 d times integers; d is rounded first."""
        values, top = values.reshape(n, -1), np.float32((1 << self.factor_bits) - 1)
        d = round_to_half(values.max(axis=1, keepdims=True) / top)
        return d, np.clip(np.rint(values * reciprocal(d)), 0, top)


class Q2_K(AffineK):
    name = "q2_k"
    description = "ggml Q2_K: 2 bits, a 4-bit scale and minimum per 16 values"
    bytes, run, bits, factor_bits = 84, 16, 2, 4
    trials = np.arange(-10, 11) / 10

    def levels(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Level, Level | None]:
        pairs = cut(ops, blocks, 0, 16)
        scale = mask(ops, pairs, 0x0F), half(ops, cut(ops, blocks, 80, 82))
        minima = mask(ops, shift_right(ops, pairs, 4), 0x0F), half(ops, cut(ops, blocks, 82, 84))
        return fields(ops, cut(ops, blocks, 16, 80), 32, 2), scale, minima

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        codes, factors, minima, d, dmin = self.quantize(x, importance)
        out[:, :16] = factors | minima << 4
        out[:, 80:82], out[:, 82:84] = half_bytes(d), half_bytes(dmin)
        self.put(codes, out)

    def put(self, codes: np.ndarray, out: np.ndarray) -> None:
        out[:, 16:80] = pack(codes, 32, 2)


class Q4_K(AffineK):
    name = "q4_k"
    description = "ggml Q4_K: 4 bits, a 6-bit scale and minimum per 32 values"
    bytes, bits, factor_bits = 144, 4, 6
    trials = np.arange(-8, 5) / 4

    def levels(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Level, Level | None]:
        factors, minima = six_bit_pairs(ops, cut(ops, blocks, 4, 16))
        scale = factors, half(ops, cut(ops, blocks, 0, 2))
        return self.codes(ops, blocks), scale, (minima, half(ops, cut(ops, blocks, 2, 4)))

    def codes(self, ops: ArrayOps, blocks: Array) -> Array:
        return fields(ops, cut(ops, blocks, self.bytes - 128, self.bytes), 32, 4)

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        codes, factors, minima, d, dmin = self.quantize(x, importance)
        out[:, :2], out[:, 2:4] = half_bytes(d), half_bytes(dmin)
        out[:, 4:8] = factors[:, :4] | factors[:, 4:] >> 4 << 6
        out[:, 8:12] = minima[:, :4] | minima[:, 4:] >> 4 << 6
        out[:, 12:16] = factors[:, 4:] & 15 | minima[:, 4:] << 4
        self.put(codes, out)

    def put(self, codes: np.ndarray, out: np.ndarray) -> None:
        if self.bits == 5:
            out[:, 16:48] = pack(codes >> 4, 32, 1)
        out[:, -128:] = pack(codes & 15, 32, 4)


class Q5_K(Q4_K):
    name = "q5_k"
    description = "ggml Q5_K: 5 bits, a 6-bit scale and minimum per 32 values"
    bytes, bits = 176, 5
    trials = np.arange(-12, 5) / 4

    def codes(self, ops: ArrayOps, blocks: Array) -> Array:
        fifth = fields(ops, cut(ops, blocks, 16, 48), 32, 1)
        return ops.bit_or(super().codes(ops, blocks), shift_left(ops, fifth, 4))
