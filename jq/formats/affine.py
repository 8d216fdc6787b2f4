"""Affine integers: `real = scale * (code - zero_point)`.

Codes are *signed* in everything but the definition of the zero point. An unsigned format's
number u is the signed code u - 2^(bits-1), and its zero point is shifted alike, which leaves
`real` as it is: no unsigned type enters a program, where compilers mistake it for a signed one.

Two levels. Values: `codes` (int8, int16) in the logical shape, `scale` (float32) and
`zero_point` (int32) of `enc.grid`. Parts: what is stored, see `storage`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from jq.errors import FormatError
from jq.formats import checks
from jq.formats.arrays import Array, ArrayOps
from jq.formats.base import Encoding, Format, Parts
from jq.formats.blocks import expand, full, reduce_blocks
from jq.formats.chunks import block_absmax, block_range, chunks
from jq.formats.numpy_ops import NUMPY
from jq.formats.packing import pack, packed_shape, unpack

F32 = np.float32


class Affine(Format):
    """Integers of `bits` bits. Option `divisor` (symmetric scheme only): the scale is

    * `absmax/127` (default; 127 stands for qmax): codes in [-qmax, qmax];
    * `absmax/127.5` (for qmax + 0.5, as qwix): the full range [-qmax - 1, qmax].

    Asymmetric: scale = (hi - lo) / (2^bits - 1) and zero_point = round(saturate(qmin - lo /
    scale)), where [lo, hi] includes 0 (ONNX's DynamicQuantizeLinear). Rounding is half to even.
    A block whose float32 scale would be below 2^-126 counts as zero: its scale is 1.
    """

    bits: ClassVar[int] = 8
    unsigned: ClassVar[bool] = False

    @property
    def code_type(self) -> np.dtype[Any]:
        """Type of unpacked codes."""
        return np.dtype(np.int16 if self.bits > 8 else np.int8)

    def limits(self, enc: Encoding) -> tuple[int, int]:
        """Smallest and largest (signed) code."""
        half = 1 << (self.bits - 1)
        narrow = enc.scheme == "symmetric" and _divisor(enc) == "absmax/127"
        return (1 - half if narrow else -half), half - 1

    def check(self, enc: Encoding) -> None:
        checks.check_not_empty(enc)
        checks.check_choice(enc, "scheme", enc.scheme, ("symmetric", "asymmetric"))
        checks.check_choice(enc, "scale type", enc.scale_type, checks.SCALE_TYPES)
        checks.check_options(enc, {"divisor": ("absmax/127", "absmax/127.5")})
        if enc.options and enc.scheme == "asymmetric":
            raise FormatError(f"{enc.format}: `divisor` belongs to the symmetric scheme")

    def storage(self, enc: Encoding) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """`codes` (packed), `scale`, and in the asymmetric scheme `zero_point` (packed alike)."""
        parts = {
            "codes": (packed_shape(enc.shape, self.bits), self.code_type),
            "scale": (enc.grid, np.dtype(enc.scale_type)),
        }
        if enc.scheme == "asymmetric":
            parts["zero_point"] = (packed_shape(enc.grid, self.bits), self.code_type)
        return parts

    # Parameters

    def _range_to_scale(
        self, ops: ArrayOps, lo: Array, hi: Array, enc: Encoding
    ) -> tuple[Array, Array]:
        """Float32 scale before rounding to `scale_type`, and its inverse, of `enc.grid`."""
        grid = enc.grid
        if enc.scheme == "symmetric":
            extent = ops.maximum(ops.abs(lo), ops.abs(hi))
            steps = 2.0 ** (self.bits - 1) - (1 if _divisor(enc) == "absmax/127" else 0.5)
        else:
            zero = full(ops, 0, grid, F32)
            extent = ops.sub(ops.maximum(hi, zero), ops.minimum(lo, zero))
            steps = 2.0**self.bits - 1
        tiny = full(ops, steps * float(checks.SMALLEST_SCALE), grid, F32)
        is_zero = ops.equal(ops.maximum(extent, tiny), tiny)
        # 1 / 1 for a zero block. The divisor depends on data, for XLA would turn a division by
        # a constant into a multiplication, an ulp away.
        one = full(ops, 1, grid, F32)
        divisor = ops.select(is_zero, one, full(ops, steps, grid, F32))
        extent = ops.select(is_zero, one, extent)
        return ops.div(extent, divisor), ops.div(divisor, extent)

    def _zero_point(self, ops: ArrayOps, lo: Array, scale: Array, enc: Encoding) -> Array | None:
        if enc.scheme == "symmetric":
            return None
        half = 1 << (self.bits - 1)
        shift = half if self.unsigned else 0
        bound = {
            k: full(ops, v + shift, enc.grid, F32) for k, v in (("lo", -half), ("hi", half - 1))
        }
        lo = ops.minimum(lo, full(ops, 0, enc.grid, F32))
        x = ops.sub(bound["lo"], ops.div(lo, scale))
        x = ops.round_even(ops.minimum(ops.maximum(x, bound["lo"]), bound["hi"]))
        zp = ops.convert(_zero_if_nan(ops, x), np.int32)
        return ops.sub(zp, full(ops, shift, enc.grid, np.int32)) if shift else zp

    def parameters(
        self, lo: np.ndarray, hi: np.ndarray, enc: Encoding
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Scale (of `enc.scale_type`) and signed zero point (int32, or None when symmetric).

        Args:
            lo, hi: smallest and largest value of every block, shape `enc.grid`.
        """
        lo, hi = (np.asarray(v, F32).reshape(enc.grid) for v in (lo, hi))
        scale = checks.as_scale(self._range_to_scale(NUMPY, lo, hi, enc)[0], enc)
        return scale, self._zero_point(NUMPY, lo, scale.astype(F32), enc)

    # Values

    def quantize(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        zero_point: np.ndarray | None,
        enc: Encoding,
    ) -> np.ndarray:
        """Codes of `enc.shape` with given parameters of `enc.grid`, see `quantize_static`."""
        return np.asarray(self.quantize_static(NUMPY, x, np.asarray(scale, F32), zero_point, enc))

    def quantize_static(
        self,
        ops: ArrayOps,
        x: Array,
        scale: Array,
        zero_point: Array | None,
        enc: Encoding,
    ) -> Array:
        """`saturate(round_half_even(x / scale) + zero_point)`; NaN becomes the code of 0.

        Args:
            x: f32, bf16 or f16 of `enc.shape`; computed in f32.
            scale: f32 of `enc.grid`.
            zero_point: signed, i32 of `enc.grid`, or None.
        """
        x = ops.convert(x, F32)
        return self._to_codes(ops, ops.div(x, expand(ops, scale, enc)), zero_point, enc)

    def quantize_dynamic(self, ops: ArrayOps, x: Array, enc: Encoding) -> dict[str, Array]:
        """Values `codes`, `scale` and (asymmetric) `zero_point` with parameters of `x` itself.

        `saturate(round_half_even(x * inv) + zero_point)`, `inv` one division per block. A block
        that holds NaN or an infinity gets a scale of NaN or infinity and decodes to NaN.
        """
        if enc.scale_type != "float32":
            raise FormatError(f"dynamic scales are float32, not {enc.scale_type}")
        x = ops.convert(x, F32)
        lo = reduce_blocks(ops, ops.reduce_min, x, enc)
        hi = reduce_blocks(ops, ops.reduce_max, x, enc)
        scale, inverse = self._range_to_scale(ops, lo, hi, enc)
        zero_point = self._zero_point(ops, lo, scale, enc)
        codes = self._to_codes(ops, ops.mul(x, expand(ops, inverse, enc)), zero_point, enc)
        values = {"codes": codes, "scale": scale}
        return values if zero_point is None else values | {"zero_point": zero_point}

    def _to_codes(
        self, ops: ArrayOps, steps: Array, zero_point: Array | None, enc: Encoding
    ) -> Array:
        """Rounds, clamps while still float (a conversion out of range wraps), adds in integers."""
        low, high = (full(ops, v, enc.grid, F32) for v in self.limits(enc))
        if zero_point is not None:
            offset = ops.convert(zero_point, F32)
            low, high = ops.sub(low, offset), ops.sub(high, offset)
        q = ops.round_even(_zero_if_nan(ops, steps))
        q = ops.minimum(ops.maximum(q, expand(ops, low, enc)), expand(ops, high, enc))
        if zero_point is None:
            return ops.convert(q, self.code_type)
        q = ops.add(ops.convert(q, np.int32), expand(ops, zero_point, enc))
        return ops.convert(q, self.code_type)

    def dequantize(
        self,
        ops: ArrayOps,
        codes: Array,
        scale: Array,
        zero_point: Array | None,
        enc: Encoding,
    ) -> Array:
        """`(codes - zero_point) * scale` in f32, from values."""
        q = codes
        if zero_point is not None:
            q = ops.sub(ops.convert(q, np.int32), expand(ops, zero_point, enc))
        return ops.mul(ops.convert(q, F32), expand(ops, scale, enc))

    # Parts

    def pack(self, codes: np.ndarray, enc: Encoding) -> np.ndarray:
        """Stored form of signed codes (of `enc.shape`) or signed zero points (of `enc.grid`)."""
        codes = np.asarray(codes, self.code_type)
        if self.bits >= 8:
            return codes
        half = np.int8(1 << (self.bits - 1))
        return pack(codes + half, self.bits, fill=int(half))

    def unpack(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """Same as `codes`."""
        return self.codes(ops, parts, enc)

    def codes(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """Signed codes, i8 or i16 of `enc.shape`."""
        return self._unpack(ops, parts["codes"], enc.shape)

    def _unpack(self, ops: ArrayOps, packed: Array, shape: tuple[int, ...]) -> Array:
        """Below 8 bits a number is stored as `code + 2^(bits-1)`: no sign to extend."""
        fields = unpack(ops, packed, shape, self.bits)
        if self.bits >= 8:
            return fields
        return ops.sub(fields, full(ops, 1 << (self.bits - 1), shape, np.int8))

    def scale(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """Scales, f32 of `enc.grid`."""
        return ops.convert(parts["scale"], F32)

    def zero_point(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array | None:
        """Signed zero points, i32 of `enc.grid`; None in the symmetric scheme."""
        if enc.scheme == "symmetric":
            return None
        return ops.convert(self._unpack(ops, parts["zero_point"], enc.grid), np.int32)

    def encode(self, x: np.ndarray, enc: Encoding) -> dict[str, np.ndarray]:
        self.check(enc)
        x = checks.as_finite_float32(x, enc)
        if enc.scheme == "symmetric":
            hi = block_absmax(x, enc)
            lo = hi
        else:
            lo, hi = block_range(x, enc)
        scale, zero_point = self.parameters(lo, hi, enc)
        wide = scale.astype(F32)
        packed = np.empty(packed_shape(enc.shape, self.bits), self.code_type)
        for rows, grid, piece in chunks(enc):
            zero = None if zero_point is None else zero_point[grid]
            codes = self.quantize(x[rows], wide[grid], zero, piece)
            packed[rows] = self.pack(codes, piece).reshape(packed[rows].shape)
        parts = {"codes": packed, "scale": scale}
        if zero_point is not None:
            parts["zero_point"] = self.pack(zero_point, enc)
        return parts

    def decode(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        codes, scale = self.codes(ops, parts, enc), self.scale(ops, parts, enc)
        return self.dequantize(ops, codes, scale, self.zero_point(ops, parts, enc), enc)


def _divisor(enc: Encoding) -> str:
    return enc.option("divisor", "absmax/127")


def _zero_if_nan(ops: ArrayOps, x: Array) -> Array:
    return ops.select(ops.equal(x, x), x, full(ops, 0, ops.shape(x), F32))


class Int2(Affine):
    name, bits = "int2", 2
    description = "2-bit integers, four per byte"


class Int4(Affine):
    name, bits = "int4", 4
    description = "4-bit integers, two per byte"


class Int8(Affine):
    name, bits = "int8", 8
    description = "8-bit integers"


class Int16(Affine):
    name, bits = "int16", 16
    description = "16-bit integers"


class UInt2(Affine):
    name, bits, unsigned = "uint2", 2, True
    description = "unsigned 2-bit integers, held as signed ones"


class UInt4(Affine):
    name, bits, unsigned = "uint4", 4, True
    description = "unsigned 4-bit integers, held as signed ones"


class UInt8(Affine):
    name, bits, unsigned = "uint8", 8, True
    description = "unsigned 8-bit integers, held as signed ones"
