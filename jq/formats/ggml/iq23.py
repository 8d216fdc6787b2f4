"""ggml's IQ types of a grid with two and three bits: points of magnitudes, and signs."""

from typing import ClassVar

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.ggml.bits import Numbers, cut, fields, half, half_bytes
from jq.formats.ggml.iq import EvenSigns, GridFormat, joined, nearest, spread
from jq.formats.packing import numbers


def seven(bits: np.ndarray) -> np.ndarray:
    """u8 [n, 256] -> the first seven of each 8 as numbers u32 [n, 32]."""
    weights = np.uint32(1) << np.arange(7, dtype=np.uint32)
    found: np.ndarray = (bits.reshape(len(bits), 32, 8)[..., :7] * weights).sum(axis=-1)
    return found.astype(np.uint32)


class Words(EvenSigns):
    """The signs of four groups of 8 and a factor in a number of 32 bits."""

    def of_words(self, ops: ArrayOps, x: Array) -> tuple[Array, Array]:
        """Signs [..., 256] and factors i8 of the bytes of 8 numbers."""
        found = numbers(ops, x, 4, np.int32)
        signs = self.expanded(ops, spread(ops, found, (0, 7, 14, 21), 7))
        return signs, ops.convert(spread(ops, found, (28,), 4), np.int8)

    def put_words(self, bits: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """The bytes u8 [n, 8, 4] of the numbers with these signs, and the factors of `kept`."""
        each = seven(bits).reshape(-1, 8, 4) << (7 * np.arange(4, dtype=np.uint32))
        factor = kept[..., 3:].astype(np.uint32) >> 4 << 28
        word = each.sum(axis=-1, keepdims=True, dtype=np.uint32) | factor
        return np.ascontiguousarray(word.astype("<u4")).view(np.uint8)


_IQ2 = np.array([8, 25, 43], np.int8)


class IQ2_XXS(Words):
    name = "iq2_xxs"
    description = "ggml IQ2_XXS: points of 8 values out of 256, a 4-bit scale per 32"
    grid, values, unit, bytes, run = "iq2_xxs", _IQ2, 0.125, 66, 32

    def read(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Array, Array, Array]:
        lead = ops.shape(blocks)[:-1]
        pairs = ops.reshape(cut(ops, blocks, 2, 66), (*lead, 8, 8))
        index = ops.reshape(cut(ops, pairs, 0, 4), (*lead, 32))
        signs, factors = self.of_words(ops, ops.reshape(cut(ops, pairs, 4, 8), (*lead, 32)))
        index = ops.bit_and(ops.convert(index, np.int16), 0xFF)
        return index, signs, factors, half(ops, cut(ops, blocks, 0, 2))

    def write_points(self, index: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
        pairs = out[:, 2:].reshape(-1, 8, 8)
        made = np.concatenate([index.reshape(-1, 8, 4), self.put_words(bits, pairs[..., 4:])], -1)
        out[:, 2:] = made.astype(np.uint8).reshape(len(out), -1)

    def write_scales(self, d: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:
        out[:, :2], out[:, 9::8] = half_bytes(d), factors << 4


class IQ3_XXS(Words):
    name = "iq3_xxs"
    description = "ggml IQ3_XXS: points of 4 values out of 256, a 4-bit scale per 32"
    values = np.array([4, 12, 20, 28, 36, 44, 52, 62], np.int8)
    grid, unit, bytes, run = "iq3_xxs", 0.25, 98, 32

    def read(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Array, Array, Array]:
        signs, factors = self.of_words(ops, cut(ops, blocks, 66, 98))
        index = ops.bit_and(ops.convert(cut(ops, blocks, 2, 66), np.int16), 0xFF)
        return index, signs, factors, half(ops, cut(ops, blocks, 0, 2))

    def write_points(self, index: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
        out[:, 2:66] = index
        out[:, 66:] = self.put_words(bits, out[:, 66:].reshape(-1, 8, 4)).reshape(len(out), -1)

    def write_scales(self, d: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:
        out[:, :2], out[:, 69::4] = half_bytes(d), factors << 4


class IQ2_XS(EvenSigns):
    name = "iq2_xs"
    description = "ggml IQ2_XS: points of 8 values out of 512, a 4-bit scale per 16"
    grid, values, unit, bytes, run = "iq2_xs", _IQ2, 0.125, 74, 16
    factors = Numbers(((66, 74, 1, 4),))

    def read(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Array, Array, Array]:
        found = numbers(ops, cut(ops, blocks, 2, 66), 2, np.int16)
        signs = self.expanded(ops, spread(ops, found, (9,), 7))
        factors = self.factors.read(ops, blocks)
        return ops.bit_and(found, 511), signs, factors, half(ops, cut(ops, blocks, 0, 2))

    def write_points(self, index: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
        out[:, 2:66] = (index | seven(bits) << 9).astype("<u2").view(np.uint8)


class IQ2_S(GridFormat):
    name = "iq2_s"
    description = "ggml IQ2_S: points of 8 values out of 1024, a 4-bit scale per 16"
    grid, values, unit, bytes, run = "iq2_s", _IQ2, 0.125, 82, 16
    high_bits = 2  # of an index beyond 8 bits
    negative, factors = Numbers(((34, 66, 1, 1),)), Numbers(((74, 82, 1, 4),))

    def read(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Array, Array, Array]:
        high = fields(ops, cut(ops, blocks, 66, 74), 1, self.high_bits)
        index = joined(ops, cut(ops, blocks, 2, 2 + 256 // self.size), high)
        bits, factors = (n.read(ops, blocks) for n in (self.negative, self.factors))
        return index, bits, factors, half(ops, cut(ops, blocks, 0, 2))

    def write_points(self, index: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
        shifts = np.arange(0, 8, self.high_bits, dtype=np.uint16)
        top = (index >> 8).reshape(len(out), 8, -1) << shifts
        out[:, 2 : 2 + 256 // self.size] = index & 255
        out[:, 66:74] = top.sum(axis=-1)
        self.negative.write(bits, out)


class IQ3_S(IQ2_S):
    name = "iq3_s"
    description = "ggml IQ3_S: points of 4 values out of 512, a 4-bit scale per 32"
    values = np.arange(1, 16, 2, dtype=np.int8)
    grid, unit, bytes, run = "iq3_s", 1.0, 110, 32
    high_bits = 1
    negative, factors = Numbers(((74, 106, 1, 1),)), Numbers(((106, 110, 1, 4),))


# ggml's IQ types of less than two bits: points of 8 numbers -1, 0, 1, all shifted by an eighth.
class ShiftedGrid(GridFormat):
    """`shared` values have one shift, which a bit says: up, or down where it is set."""

    grid, values, unit, factor_bits = "iq1", np.array([-8, 0, 8], np.int8), 0.125, 3
    shared: ClassVar[int]
    limits = (-9, 9)

    def coded(self, ops: ArrayOps, values: Array, bits: Array) -> Array:
        return ops.add(values, ops.sub(1, ops.add(bits, bits)))

    def nearest(
        self, wanted: np.ndarray, weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tried = [nearest(self.points + np.float32(s), wanted, weights) for s in (1, -1)]
        up, down = (loss.reshape(-1, self.shared // 8).sum(axis=1) for _, loss in tried)
        lower = np.repeat(down < up, self.shared // 8)
        index = np.where(lower, tried[1][0], tried[0][0])
        bits = np.repeat(lower, 8).reshape(wanted.shape).astype(np.uint8)
        codes = self.points[index].reshape(wanted.shape) + np.float32(1) - 2 * bits
        return index.reshape(len(wanted), -1), bits, codes.astype(np.float32)


class IQ1_S(ShiftedGrid):
    name = "iq1_s"
    description = "ggml IQ1_S: points of 8 values out of 2048, a 3-bit scale per 32"
    bytes, run, shared, together = 50, 32, 32, 32

    def read(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Array, Array, Array]:
        word = numbers(ops, cut(ops, blocks, 34, 50), 2, np.int16)
        index = joined(ops, cut(ops, blocks, 2, 34), spread(ops, word, (0, 3, 6, 9), 3))
        shift = spread(ops, word, (15,) * 32, 1)
        factors = ops.convert(spread(ops, word, (12,), 3), np.int8)
        return index, shift, factors, half(ops, cut(ops, blocks, 0, 2))

    def write_points(self, index: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
        high = ((index >> 8).reshape(-1, 8, 4) << np.array([0, 3, 6, 9], np.uint16)).sum(axis=-1)
        word = high | out[:, 35::2][:, -8:].astype(np.uint64) << 8 & 0x7000
        word |= bits[:, ::32].astype(np.uint64) << 15
        out[:, 2:34] = index & 255
        out[:, 34:] = word.astype("<u2").view(np.uint8)

    def write_scales(self, d: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:
        out[:, :2], out[:, 35::2] = half_bytes(d), factors << 4


class IQ1_M(ShiftedGrid):
    """The f16 scale lies in the highest four bits of the four numbers that hold the factors."""

    name = "iq1_m"
    description = "ggml IQ1_M: points of 8 values out of 2048, a 3-bit scale per 16"
    bytes, run, shared, halves = 56, 16, 8, ()

    def read(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Array, Array, Array]:
        nibbles = fields(ops, cut(ops, blocks, 32, 48), 1, 4)
        index = joined(ops, cut(ops, blocks, 0, 32), ops.bit_and(nibbles, 7))
        shift = spread(ops, nibbles, (3,) * 8, 1)
        word = numbers(ops, cut(ops, blocks, 48, 56), 2, np.int16)
        factors = ops.convert(spread(ops, word, (0, 3, 6, 9), 3), np.int8)
        top = ops.shift_right(word, 12)
        d = cut(ops, top, 0, 1)
        for i in range(1, 4):
            piece = cut(ops, top, i, i + 1)
            d = ops.bit_or(d, ops.shift_left(piece, 4 * i))
        return index, shift, factors, ops.convert(ops.bitcast(d, np.float16), np.float32)

    def write_points(self, index: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
        nibbles = (index >> 8).astype(np.uint8) | bits[:, ::8] << 3
        out[:, :32] = index & 255
        out[:, 32:48] = nibbles[:, ::2] | nibbles[:, 1::2] << 4

    def write_scales(self, d: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:
        word = (factors.reshape(-1, 4, 4).astype(np.uint16) << np.array([0, 3, 6, 9], "u2")).sum(-1)
        scale = half_bytes(d).view("<u2").astype(np.uint64) >> np.array([0, 4, 8, 12], np.uint64)
        out[:, 48:] = (word | (scale & 15) << 12).astype("<u2").view(np.uint8)
