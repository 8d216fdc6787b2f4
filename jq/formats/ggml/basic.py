"""ggml types with one scale per block of 32: q8_0, q4_0, q4_1, q5_0, q5_1, mxfp4."""

from typing import ClassVar

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.ggml import GgmlFormat, Triple, reciprocal, row_max
from jq.formats.ggml.bits import Numbers, cut, half, half_bytes


class Q8_0(GgmlFormat):
    name = "q8_0"
    description = "ggml Q8_0: 8 bits, an f16 scale per 32 values"
    bytes = 34
    limits = (-127, 127)

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        return cut(ops, blocks, 2, 34), half(ops, cut(ops, blocks, 0, 2)), None

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        d = row_max(np.abs(x)) / np.float32(127)
        out[:, :2] = half_bytes(d)
        out[:, 2:] = round_away(x * reciprocal(d)).view(np.uint8)

    def put(self, codes: np.ndarray, out: np.ndarray) -> None:
        out[:, 2:] = codes - np.uint8(127)


def round_away(x: np.ndarray) -> np.ndarray:
    """Nearest int8, halves away from zero. Exact, where adding 0.5 would round 0.49999997 up."""
    whole = np.trunc(x)
    x -= whole
    x += x
    whole += np.trunc(x, out=x)
    return whole.astype(np.int8)


class _Basic(GgmlFormat):
    """f16 scale, f16 offset when `signed` is false, codes of `bits` bits."""

    bits: ClassVar[int]
    signed: ClassVar[bool]

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        codes, scale = self.numbers.read(ops, blocks), half(ops, cut(ops, blocks, 0, 2))
        if not self.signed:
            return codes, scale, half(ops, cut(ops, blocks, 2, 4))
        return ops.sub(codes, 1 << (self.bits - 1)), scale, None

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        d, codes = self._signed_codes(x, out) if self.signed else self._affine_codes(x, out)
        out[:, :2] = half_bytes(d)
        self.put(np.minimum(codes.astype(np.uint8), (1 << self.bits) - 1), out)

    @property
    def limits(self) -> tuple[int, int]:
        low = -(1 << (self.bits - 1)) if self.signed else 0
        return low, low + (1 << self.bits) - 1

    def _signed_codes(self, x: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The value of largest magnitude becomes the most negative code, so all codes are used."""
        zero = 1 << (self.bits - 1)
        largest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
        d = largest / np.float32(-zero)
        return d, x * reciprocal(d) + np.float32(zero + 0.5)

    def _affine_codes(self, x: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low = -row_max(-x)
        d = (row_max(x) - low) / np.float32((1 << self.bits) - 1)
        out[:, 2:4] = half_bytes(low)
        return d, (x - low) * reciprocal(d) + np.float32(0.5)


class Q4_0(_Basic):
    name = "q4_0"
    description = "ggml Q4_0: 4 bits, an f16 scale per 32 values"
    bytes, bits, signed = 18, 4, True
    numbers = Numbers(((2, 18, 16, 4),))


class Q4_1(_Basic):
    name = "q4_1"
    description = "ggml Q4_1: 4 bits, an f16 scale and minimum per 32 values"
    bytes, bits, signed, halves = 20, 4, False, (0, 2)
    numbers = Numbers(((4, 20, 16, 4),))


class Q5_0(_Basic):
    name = "q5_0"
    description = "ggml Q5_0: 5 bits, an f16 scale per 32 values"
    bytes, bits, signed = 22, 5, True
    numbers = Numbers(((6, 22, 16, 4), (2, 6, 1, 1)))


class Q5_1(_Basic):
    name = "q5_1"
    description = "ggml Q5_1: 5 bits, an f16 scale and minimum per 32 values"
    bytes, bits, signed, halves = 24, 5, False, (0, 2)
    numbers = Numbers(((8, 24, 16, 4), (4, 8, 1, 1)))


# Twice the e2m1 values, so that codes are integers; the scale carries the half.
_E2M1_TWICE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
_E2M1_MIDDLES = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)


class GgmlMxfp4(GgmlFormat):
    """Exponent byte e, then nibbles: code * 2^(e - 128). Here e = 255 is a number, in OCP NaN."""

    name = "ggml_mxfp4"
    description = "ggml MXFP4: 4-bit floats, a power-of-two scale per 32 values"
    bytes, numbers = 17, Numbers(((1, 17, 16, 4),))
    half_scales, halves, table = False, (), np.unique(_E2M1_TWICE)
    limits = (-12, 12)

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        codes = ops.take(_E2M1_TWICE, ops.convert(self.numbers.read(ops, blocks), np.int32))
        e = ops.bit_and(ops.convert(cut(ops, blocks, 0, 1), np.int32), 0xFF)
        normal = ops.shift_left(ops.sub(e, 1), 23)
        # 2^-128 and 2^-127 are denormal: their bits are a shifted one, not an exponent.
        denormal = ops.shift_left(1 << 21, ops.minimum(e, 1))
        small = ops.equal(e, ops.minimum(e, 1))
        return codes, ops.bitcast(ops.select(small, denormal, normal), np.float32), None

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        size = np.abs(x)
        with np.errstate(divide="ignore"):
            e = np.floor(np.log2(row_max(size))) + np.float32(125)
        e = np.maximum(e, np.float32(0))
        size *= np.ldexp(np.float32(1), (127 - e).astype(np.int32))
        # Nearest of the eight magnitudes, ties to the smaller one, as the reference searches.
        codes = np.zeros(x.shape, np.uint8)
        for middle in _E2M1_MIDDLES:
            codes += size > middle
        codes[(x < 0) & (codes > 0)] |= 8
        out[:, :1] = e.astype(np.uint8)
        self.numbers.write(codes, out)

    def put(self, codes: np.ndarray, out: np.ndarray) -> None:
        """Codes that are no doubled e2m1 number become the next smaller one."""
        signed = codes.astype(np.int8) - np.int8(12)
        place = np.searchsorted(_E2M1_TWICE[:8], np.abs(signed), side="right").astype(np.uint8) - 1
        self.numbers.write(place | (signed < 0).astype(np.uint8) << 3, out)
