"""ggml's IQ types of less than two bits: points of 8 numbers -1, 0, 1, all shifted by an eighth."""

from typing import ClassVar

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.ggml.bits import cut, fields, full, half, half_bytes, mask, shift_right
from jq.formats.ggml.iq import GridFormat, joined, nearest, numbers, spread


class ShiftedGrid(GridFormat):
    """`shared` values have one shift, which a bit says: up, or down where it is set."""

    grid, values, unit, factor_bits = "iq1", np.array([-8, 0, 8], np.int8), 0.125, 3
    shared: ClassVar[int]

    def coded(self, ops: ArrayOps, values: Array, bits: Array) -> Array:
        return ops.add(values, ops.sub(full(ops, bits, 1), ops.add(bits, bits)))

    @property
    def limits(self) -> tuple[int, int]:
        return -9, 9

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
    bytes, run, shared = 50, 32, 32

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
    bytes, run, shared = 56, 16, 8

    def read(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Array, Array, Array]:
        nibbles = fields(ops, cut(ops, blocks, 32, 48), 1, 4)
        index = joined(ops, cut(ops, blocks, 0, 32), mask(ops, nibbles, 7))
        shift = spread(ops, nibbles, (3,) * 8, 1)
        word = numbers(ops, cut(ops, blocks, 48, 56), 2, np.int16)
        factors = ops.convert(spread(ops, word, (0, 3, 6, 9), 3), np.int8)
        top = shift_right(ops, word, 12)
        d = cut(ops, top, 0, 1)
        for i in range(1, 4):
            piece = cut(ops, top, i, i + 1)
            d = ops.bit_or(d, ops.shift_left(piece, full(ops, piece, 4 * i)))
        return index, shift, factors, ops.convert(ops.bitcast(d, np.float16), np.float32)

    def write_points(self, index: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
        nibbles = (index >> 8).astype(np.uint8) | bits[:, ::8] << 3
        out[:, :32] = index & 255
        out[:, 32:48] = nibbles[:, ::2] | nibbles[:, 1::2] << 4

    def write_scales(self, d: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:
        word = (factors.reshape(-1, 4, 4).astype(np.uint16) << np.array([0, 3, 6, 9], "u2")).sum(-1)
        scale = half_bytes(d).view("<u2").astype(np.uint64) >> np.array([0, 4, 8, 12], np.uint64)
        out[:, 48:] = (word | (scale & 15) << 12).astype("<u2").view(np.uint8)
