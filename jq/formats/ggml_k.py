"""ggml k-quants: super-blocks of 256 values whose sub-block scales are themselves quantized."""

from __future__ import annotations

import numpy as np

from jq.errors import FormatError
from jq.formats.arrays import Array, ArrayOps
from jq.formats.ggml import GgmlFormat, Triple
from jq.formats.ggml_bits import cut, fields, full, half, mask, shift_left, shift_right


def scaled(ops: ArrayOps, d: Array, factors: Array) -> Array:
    """f16 super-block scale times small integer factors: f32 [..., 1] x i8 [..., n]. Exact."""
    shape = ops.shape(factors)
    wide = ops.broadcast(ops.reshape(d, shape[:-1]), shape, range(len(shape) - 1))
    return ops.mul(wide, ops.convert(factors, np.float32))


def negated(ops: ArrayOps, x: Array) -> Array:
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


class KQuant(GgmlFormat):
    block = 256

    def write(self, x: np.ndarray, out: np.ndarray) -> None:
        raise FormatError(f"{self.name} cannot be encoded yet")


class Q2_K(KQuant):
    name = "q2_k"
    description = "ggml Q2_K: 2 bits, a 4-bit scale and minimum per 16 values"
    bytes, run = 84, 16

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        pairs = cut(ops, blocks, 0, 16)
        scale = scaled(ops, half(ops, cut(ops, blocks, 80, 82)), mask(ops, pairs, 0x0F))
        minima = mask(ops, shift_right(ops, pairs, 4), 0x0F)
        offset = scaled(ops, half(ops, cut(ops, blocks, 82, 84)), minima)
        return fields(ops, cut(ops, blocks, 16, 80), 32, 2), scale, negated(ops, offset)


class Q3_K(KQuant):
    name = "q3_k"
    description = "ggml Q3_K: 3 bits, a 6-bit scale per 16 values"
    bytes, run = 110, 16

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        top = fields(ops, cut(ops, blocks, 0, 32), 32, 1)
        codes = fields(ops, cut(ops, blocks, 32, 96), 32, 2)
        codes = ops.bit_or(codes, shift_left(ops, top, 2))
        low = fields(ops, cut(ops, blocks, 96, 104), 8, 4)
        high = fields(ops, cut(ops, blocks, 104, 108), 4, 2)
        factors = ops.bit_or(low, shift_left(ops, high, 4))
        factors = ops.sub(factors, full(ops, factors, 32))
        scale = scaled(ops, half(ops, cut(ops, blocks, 108, 110)), factors)
        return ops.sub(codes, full(ops, codes, 4)), scale, None


class Q4_K(KQuant):
    name = "q4_k"
    description = "ggml Q4_K: 4 bits, a 6-bit scale and minimum per 32 values"
    bytes = 144

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        factors, minima = six_bit_pairs(ops, cut(ops, blocks, 4, 16))
        scale = scaled(ops, half(ops, cut(ops, blocks, 0, 2)), factors)
        offset = scaled(ops, half(ops, cut(ops, blocks, 2, 4)), minima)
        return self.codes(ops, blocks), scale, negated(ops, offset)

    def codes(self, ops: ArrayOps, blocks: Array) -> Array:
        return fields(ops, cut(ops, blocks, self.bytes - 128, self.bytes), 32, 4)


class Q5_K(Q4_K):
    name = "q5_k"
    description = "ggml Q5_K: 5 bits, a 6-bit scale and minimum per 32 values"
    bytes = 176

    def codes(self, ops: ArrayOps, blocks: Array) -> Array:
        fifth = fields(ops, cut(ops, blocks, 16, 48), 32, 1)
        return ops.bit_or(super().codes(ops, blocks), shift_left(ops, fifth, 4))


class Q6_K(KQuant):
    name = "q6_k"
    description = "ggml Q6_K: 6 bits, an 8-bit scale per 16 values"
    bytes, run = 210, 16

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        codes = fields(ops, cut(ops, blocks, 0, 128), 64, 4)
        high = fields(ops, cut(ops, blocks, 128, 192), 32, 2)
        codes = ops.bit_or(codes, shift_left(ops, high, 4))
        scale = scaled(ops, half(ops, cut(ops, blocks, 208, 210)), cut(ops, blocks, 192, 208))
        return ops.sub(codes, full(ops, codes, 32)), scale, None
