"""Formats Q3_K and Q6_K: super-blocks whose blocks have a scale and no minimum."""

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.ggml import reciprocal
from jq.formats.ggml.bits import (
    cut,
    fields,
    fit_symmetric,
    full,
    half,
    half_bytes,
    pack,
    shift_left,
)
from jq.formats.ggml.k import KQuant, Level


class SymmetricK(KQuant):
    """d * factor * code, codes and factors signed."""

    @property
    def limits(self) -> tuple[int, int]:
        half = 1 << (self.bits - 1)
        return -half, half - 1

    def quantize(
        self, x: np.ndarray, importance: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes u8 [n, 256] and factors i8 [n, runs], d f32 [n, 1]; codes from 0 upwards."""
        half = 1 << (self.bits - 1)
        scale = fit_symmetric(self.runs(x), half, self.trials, self.weights(x, importance))
        d, factors = self.signed_factors(scale.reshape(len(x), -1))
        codes = x.reshape(len(x), -1, self.run) * reciprocal(d * factors)[..., None]
        codes = np.clip(np.rint(codes), -half, half - 1) + np.float32(half)
        return codes.astype(np.uint8).reshape(x.shape), factors.astype(np.int8), d


class Q3_K(SymmetricK):
    name = "q3_k"
    description = "ggml Q3_K: 3 bits, a 6-bit scale per 16 values"
    bytes, run, bits, factor_bits = 110, 16, 3, 6
    trials = np.arange(-4, 5) / 4

    def levels(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Level, Level | None]:
        top = fields(ops, cut(ops, blocks, 0, 32), 32, 1)
        codes = fields(ops, cut(ops, blocks, 32, 96), 32, 2)
        codes = ops.bit_or(codes, shift_left(ops, top, 2))
        low = fields(ops, cut(ops, blocks, 96, 104), 8, 4)
        high = fields(ops, cut(ops, blocks, 104, 108), 4, 2)
        factors = ops.bit_or(low, shift_left(ops, high, 4))
        factors = ops.sub(factors, full(ops, factors, 32))
        scale = factors, half(ops, cut(ops, blocks, 108, 110))
        return ops.sub(codes, full(ops, codes, 4)), scale, None

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        codes, factors, d = self.quantize(x, importance)
        shifted = (factors + np.int8(32)).view(np.uint8)
        out[:, 96:104] = pack(shifted & 15, 8, 4)
        out[:, 104:108] = pack(shifted >> 4, 4, 2)
        out[:, 108:110] = half_bytes(d)
        self.put(codes, out)

    def put(self, codes: np.ndarray, out: np.ndarray) -> None:
        out[:, :32] = pack(codes >> 2, 32, 1)
        out[:, 32:96] = pack(codes & 3, 32, 2)


class Q6_K(SymmetricK):
    name = "q6_k"
    description = "ggml Q6_K: 6 bits, an 8-bit scale per 16 values"
    bytes, run, bits, factor_bits = 210, 16, 6, 8
    trials = np.arange(-12, 5) / 4

    def levels(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Level, Level | None]:
        codes = fields(ops, cut(ops, blocks, 0, 128), 64, 4)
        high = fields(ops, cut(ops, blocks, 128, 192), 32, 2)
        codes = ops.bit_or(codes, shift_left(ops, high, 4))
        scale = cut(ops, blocks, 192, 208), half(ops, cut(ops, blocks, 208, 210))
        return ops.sub(codes, full(ops, codes, 32)), scale, None

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        codes, factors, d = self.quantize(x, importance)
        out[:, 192:208] = factors.view(np.uint8)
        out[:, 208:210] = half_bytes(d)
        self.put(codes, out)

    def put(self, codes: np.ndarray, out: np.ndarray) -> None:
        out[:, :128] = pack(codes & 15, 64, 4)
        out[:, 128:192] = pack(codes >> 4, 32, 2)
