"""ggml's IQ types of a grid with two and three bits: points of magnitudes, and signs."""

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.ggml.bits import cut, fields, half, half_bytes, mask
from jq.formats.ggml.iq import EvenSigns, GridFormat, joined, numbers, spread


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
        index = mask(ops, ops.convert(index, np.int16), 0xFF)
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
        index = mask(ops, ops.convert(cut(ops, blocks, 2, 66), np.int16), 0xFF)
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

    def read(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Array, Array, Array]:
        found = numbers(ops, cut(ops, blocks, 2, 66), 2, np.int16)
        signs = self.expanded(ops, spread(ops, found, (9,), 7))
        factors = fields(ops, cut(ops, blocks, 66, 74), 1, 4)
        return mask(ops, found, 511), signs, factors, half(ops, cut(ops, blocks, 0, 2))

    def write_points(self, index: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
        out[:, 2:66] = (index | seven(bits) << 9).astype("<u2").view(np.uint8)

    def write_scales(self, d: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:
        out[:, :2], out[:, 66:] = half_bytes(d), factors[:, ::2] | factors[:, 1::2] << 4


class IQ2_S(GridFormat):
    name = "iq2_s"
    description = "ggml IQ2_S: points of 8 values out of 1024, a 4-bit scale per 16"
    grid, values, unit, bytes, run = "iq2_s", _IQ2, 0.125, 82, 16
    high_bits, signs_at = 2, 34  # of an index beyond 8 bits; where signs begin

    def read(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Array, Array, Array]:
        shifts, signs = tuple(range(0, 8, self.high_bits)), self.signs_at
        high = spread(ops, cut(ops, blocks, 66, 74), shifts, self.high_bits)
        index = joined(ops, cut(ops, blocks, 2, 2 + 256 // self.size), high)
        bits = fields(ops, cut(ops, blocks, signs, signs + 32), 1, 1)
        factors = fields(ops, cut(ops, blocks, self.bytes - 128 // self.run, self.bytes), 1, 4)
        return index, bits, factors, half(ops, cut(ops, blocks, 0, 2))

    def write_points(self, index: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
        shifts = np.arange(0, 8, self.high_bits, dtype=np.uint16)
        top = (index >> 8).reshape(len(out), 8, -1) << shifts
        out[:, 2 : 2 + 256 // self.size] = index & 255
        out[:, 66:74] = top.sum(axis=-1)
        out[:, self.signs_at : self.signs_at + 32] = np.packbits(bits, axis=1, bitorder="little")

    def write_scales(self, d: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:
        out[:, :2] = half_bytes(d)
        out[:, -128 // self.run :] = factors[:, ::2] | factors[:, 1::2] << 4


class IQ3_S(IQ2_S):
    name = "iq3_s"
    description = "ggml IQ3_S: points of 4 values out of 512, a 4-bit scale per 32"
    values = np.arange(1, 16, 2, dtype=np.int8)
    grid, unit, bytes, run = "iq3_s", 1.0, 110, 32
    high_bits, signs_at = 1, 74
