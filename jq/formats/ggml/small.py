"""ggml types whose codes are places in a small table: IQ4_NL, IQ4_XS, TQ1_0, TQ2_0."""

from typing import ClassVar

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.ggml import GgmlFormat, Triple, reciprocal, row_max
from jq.formats.ggml.basic import round_away
from jq.formats.ggml.bits import Numbers, cut, half, half_bytes, round_to_half
from jq.formats.ggml.iq import spread
from jq.formats.ggml.k_symmetric import SignedFactors

_NUMBERS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
_MIDDLES = (_NUMBERS[1:].astype(np.float32) + _NUMBERS[:-1].astype(np.float32)) / 2


def places(x: np.ndarray) -> np.ndarray:
    """u8: the place of the nearest number to each f32."""
    return np.searchsorted(_MIDDLES, x).astype(np.uint8)


def _fitted(x: np.ndarray, trials: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Scales f32 [n] of runs f32 [n, run]: of the trials, the best by least squares."""
    high, low = x.max(axis=1), x.min(axis=1)
    largest = np.where(high > -low, high, low)
    w = np.float32(1) if weights is None else weights
    scale, best = np.zeros_like(high), np.zeros_like(high)
    for trial in trials:
        codes = _NUMBERS.astype(np.float32)[places(x * reciprocal(largest / trial)[:, None])]
        product = (codes * x * w).sum(axis=1)
        s = product * reciprocal((codes * codes * w).sum(axis=1))
        better = s * product > best
        scale, best = np.where(better, s, scale), np.where(better, s * product, best)
    return scale


_TRIALS = np.array([-127, -121, -115, -109, -104, 113, 108, 103, 98, 93], np.float32)


class _Unequal(GgmlFormat):
    """Codes are `_NUMBERS`, which are stored by their places."""

    table = _NUMBERS
    limits = (-127, 113)

    def codes(self, ops: ArrayOps, blocks: Array) -> Array:
        return ops.take(_NUMBERS, ops.convert(self.numbers.read(ops, blocks), np.int32))

    def put(self, codes: np.ndarray, out: np.ndarray) -> None:
        """Codes that are none of the numbers become the nearest one."""
        self.numbers.write(places(codes.astype(np.float32) - 127), out)


class IQ4_NL(_Unequal):
    name = "iq4_nl"
    description = "ggml IQ4_NL: 16 numbers of unequal steps, an f16 scale per 32 values"
    bytes, numbers = 18, Numbers(((2, 18, 16, 4),))

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        return self.codes(ops, blocks), half(ops, cut(ops, blocks, 0, 2)), None

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        d = round_to_half(_fitted(x, _TRIALS, importance)[:, None])
        out[:, :2] = half_bytes(d)
        self.numbers.write(places(x * reciprocal(d)), out)


class IQ4_XS(_Unequal, SignedFactors):
    name = "iq4_xs"
    description = "ggml IQ4_XS: 16 numbers of unequal steps, a 6-bit scale per 32 values"
    bytes, run, bits, factor_bits, trials = 136, 32, 4, 6, _TRIALS
    numbers, factors = Numbers(((8, 136, 16, 4),)), Numbers(((4, 8, 1, 4), (2, 4, 1, 2)))

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        weights = self.weights(x, importance)
        weights = None if weights is None else weights.T
        scale = _fitted(x.reshape(-1, 32), self.trials, weights).reshape(len(x), 8)
        d, factors = self.signed_factors(scale)
        self.write_factors(d, factors, out)
        wanted = x.reshape(len(x), 8, 32) * reciprocal(d * factors)[..., None]
        self.numbers.write(places(wanted.reshape(x.shape)), out)


class _Ternary(GgmlFormat):
    """Numbers -1, 0, 1 and one scale, the largest magnitude."""

    block = run = 256
    limits = (-1, 1)

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        d = row_max(np.abs(x))
        out[:, -2:] = half_bytes(d)
        self.put((round_away(x * reciprocal(d)) + 1).astype(np.uint8), out)


class TQ2_0(_Ternary):
    name = "tq2_0"
    description = "ggml TQ2_0: -1, 0 and 1 in 2 bits, an f16 scale per 256 values"
    bytes, numbers, halves = 66, Numbers(((0, 64, 32, 2),)), (64,)

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        codes = self.numbers.read(ops, blocks)
        return ops.sub(codes, 1), half(ops, cut(ops, blocks, 64, 66)), None


class TQ1_0(_Ternary):
    """Five digits of base 3 in a byte, as a fraction of 256: the highest digit of a number is the
    whole part of three times it, and the next is found after multiplying by three again."""

    name = "tq1_0"
    description = "ggml TQ1_0: -1, 0 and 1, five in 8 bits, an f16 scale per 256 values"
    bytes, halves = 54, (52,)
    # Bytes from, to; and the digits that each holds, those of the same place side by side.
    rows: ClassVar[tuple[tuple[int, int, int], ...]] = ((0, 32, 5), (32, 48, 5), (48, 52, 4))

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        digits = []
        for start, stop, count in self.rows:
            part = ops.bit_and(ops.convert(cut(ops, blocks, start, stop), np.int16), 0xFF)
            for _ in range(count):
                three = ops.add(ops.add(part, part), part)
                digits.append(spread(ops, three, (8,), 8))
                part = ops.bit_and(three, 0xFF)
        codes = ops.convert(ops.concatenate(digits, len(ops.shape(blocks)) - 1), np.int8)
        return ops.sub(codes, 1), half(ops, cut(ops, blocks, 52, 54)), None

    def put(self, codes: np.ndarray, out: np.ndarray) -> None:
        first = 0
        for start, stop, count in self.rows:
            size = stop - start
            each = codes[:, first : first + size * count].reshape(-1, count, size)
            number = (each * 3 ** np.arange(4, 4 - count, -1)[:, None]).sum(axis=1)
            out[:, start:stop] = (number * 256 + 242) // 243
            first += size * count
