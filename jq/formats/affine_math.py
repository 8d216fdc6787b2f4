"""The arithmetic of affine integers, once for NumPy and for programs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from jq.formats import checks
from jq.formats.arrays import NUMPY, Array, ArrayOps, clip
from jq.formats.base import Encoding, Format, Parts, unpacked
from jq.formats.blocks import chunks, expand, full, per_block
from jq.formats.packing import PACKED, pack, packed_shape, unpack

F32 = np.float32


def zero_if_nan(ops: ArrayOps, x: Array) -> Array:
    """`x` (floats of any shape) with 0 in place of NaN; infinities stay."""
    return ops.select(ops.equal(x, x), x, 0)


def scale_of_extent(ops: ArrayOps, extent: Array, steps: float) -> tuple[Array, Array]:
    """`extent / steps` and its inverse, f32; both 1 where the scale would be below 2^-126.

    NaN and infinity pass through."""
    tiny = steps * float(checks.SMALLEST_SCALE)
    is_zero = ops.equal(ops.maximum(extent, tiny), tiny)
    # 1 / 1 for a zero block. The divisor depends on data, for XLA would turn a division by a
    # constant into a multiplication, an ulp away.
    one = full(ops, 1, ops.shape(extent), F32)
    divisor = ops.select(is_zero, one, steps)
    extent = ops.select(is_zero, one, extent)
    return ops.div(extent, divisor), ops.div(divisor, extent)


def stored_scale(ops: ArrayOps, scale: Array, enc: Encoding) -> Array:
    """f32 scales as `checks.as_scale` rounds them."""
    if enc.scale_type == "float32":
        return scale
    scale = ops.convert(ops.convert(scale, np.dtype(enc.scale_type)), F32)
    least = float(np.finfo(np.float16).smallest_subnormal)
    return ops.maximum(scale, least) if enc.scale_type == "float16" else scale


def zero_point_of_range(ops: ArrayOps, lo: Array, scale: Array, low: int, high: int) -> Array:
    """`round(saturate(low - min(lo, 0) / scale))` in i32, for codes in [low, high]."""
    lo = ops.minimum(lo, 0)
    least, most = (full(ops, v, ops.shape(lo), F32) for v in (low, high))
    x = clip(ops, ops.sub(least, ops.div(lo, scale)), least, most)
    return ops.convert(zero_if_nan(ops, ops.round_even(x)), np.int32)


def to_codes(
    ops: ArrayOps,
    steps: Array,
    zero_point: Array | None,
    limits: tuple[int, int],
    code_type: np.dtype[Any],
    enc: Encoding,
) -> Array:
    """`saturate(round_half_even(steps) + zero_point)`, the sum in integers; NaN counts as 0.

    Saturates while still float: a conversion out of range wraps in IREE."""
    low, high = (full(ops, v, enc.grid, F32) for v in limits)
    if zero_point is not None:
        offset = ops.convert(zero_point, F32)
        low, high = ops.sub(low, offset), ops.sub(high, offset)
    q = ops.round_even(zero_if_nan(ops, steps))
    q = ops.minimum(ops.maximum(q, expand(ops, low, enc)), expand(ops, high, enc))
    if zero_point is not None:
        q = ops.add(ops.convert(q, np.int32), expand(ops, zero_point, enc))
    return ops.convert(q, code_type)


def finite_codes(
    x: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None,
    limits: tuple[int, int],
    enc: Encoding,
) -> np.ndarray:
    """`to_codes` of finite values within the range of their block, without its temporaries."""
    steps = np.atleast_1d(per_block(np.divide, x, scale, enc))
    np.rint(steps, out=steps)
    if zero_point is not None:  # whole numbers far below 2^24: the sum is exact
        shift = zero_point.astype(F32)
        steps = np.atleast_1d(per_block(np.add, steps.reshape(enc.shape), shift, enc))
    np.clip(steps, *limits, out=steps)
    return steps.reshape(enc.shape)


NARROW, FULL, HALF = "absmax/127", "absmax/127.5", "absmax/63"  # values of the option `divisor`
_ELEMENTS = {2: ml_dtypes.int2, 4: ml_dtypes.int4}  # by their bits


class ByElement(Format):
    """A code for each element, packed along the last axis or not, and parts of the grid."""

    def check(self, enc: Encoding) -> None:
        checks.check_not_empty(enc)
        checks.check_choice(enc, "scheme", enc.scheme, self.schemes)
        checks.check_options(enc, self.options(enc))

    def codes(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """The codes as they are stored, i8 of `enc.shape`; below 8 bits they are not negative."""
        return unpack(ops, parts["codes"], enc.shape, self.stored_bits(enc))

    def decode_elements(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        typed = self.element_types(enc)
        if not typed:
            return self.decode(ops, parts, enc)
        plain = {k: ops.convert(v, np.int8) if k in typed else v for k, v in parts.items()}
        return self.decode(ops, plain, unpacked(enc))

    def to_numpy(self, parts: Mapping[str, np.ndarray], enc: Encoding) -> np.ndarray:
        """Piece by piece: a slice of the tensor is the same slice of its codes, and of the others,
        which have the shape of the grid, but for axes of size 1."""
        out = np.empty(enc.shape, np.float32)
        for rows, grid, piece in chunks(enc):
            cut = {name: part[_clipped(grid, part)] for name, part in parts.items()}
            out[rows] = self.decode(NUMPY, cut | {"codes": parts["codes"][rows]}, piece)
        return out


def _clipped(index: tuple[slice, ...], part: np.ndarray) -> tuple[slice, ...]:
    return tuple(slice(None) if n == 1 else s for s, n in zip(index, part.shape, strict=False))


class StoredIntegers(ByElement):
    """The parts of a tensor of affine integers (`Affine`) of `bits` bits, and values from them."""

    schemes: ClassVar[tuple[str, ...]] = ("symmetric", "asymmetric")
    bits: ClassVar[int] = 8
    unsigned: ClassVar[bool] = False

    @property
    def code_type(self) -> np.dtype[Any]:
        """Type of unpacked codes."""
        return np.dtype(np.int16 if self.bits > 8 else np.int8)

    @property
    def integer_bits(self) -> int:
        return self.bits

    def stored_bits(self, enc: Encoding) -> int:
        """Bits of a stored code: with the option `packing` = `none`, and where no group of codes
        fills bytes, those of `code_type`."""
        packed = enc.option("packing", "bits") == "bits" and self.bits in PACKED
        return self.bits if packed else self.code_type.itemsize * 8

    def storage(self, enc: Encoding) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """`codes` (packed), `scale`, and in the asymmetric scheme `zero_point` (packed alike)."""
        parts = {
            "codes": (packed_shape(enc.shape, self.stored_bits(enc)), self.code_type),
            "scale": (enc.grid, np.dtype(enc.scale_type)),
        }
        if enc.scheme == "asymmetric":
            parts["zero_point"] = (packed_shape(enc.grid, self.stored_bits(enc)), self.code_type)
        return parts

    def element_types(self, enc: Encoding) -> dict[str, np.dtype[Any]]:
        """Signed codes and zero points of less than a byte."""
        if self.bits not in _ELEMENTS:
            return {}
        parts = self.storage(enc).keys() - {"scale"}
        return {name: np.dtype(_ELEMENTS[self.bits]) for name in parts}

    def of_codes(
        self, codes: np.ndarray, zero: np.ndarray, enc: Encoding
    ) -> tuple[Encoding, dict[str, np.ndarray]] | None:
        half = 1 << (self.bits - 1)
        shift = half if self.unsigned else 0
        zero = zero - shift
        if not ((zero == np.rint(zero)) & (-half <= zero) & (zero < half)).all():
            return None
        full = (("divisor", FULL),)  # every code may occur
        enc = replace(enc, scheme="asymmetric") if zero.any() else replace(enc, options=full)
        parts = {"codes": self.pack(codes.astype(np.int64) - shift, enc)}
        return enc, parts | ({"zero_point": self.pack(zero, enc)} if zero.any() else {})

    def pack(self, codes: np.ndarray, enc: Encoding) -> np.ndarray:
        """Stored form of signed codes (of `enc.shape`) or signed zero points (of `enc.grid`)."""
        codes = np.asarray(codes, self.code_type)
        if self.stored_bits(enc) >= 8:
            return codes
        return pack(codes + np.int8(self.filler), self.bits, self.filler)

    def codes(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """Signed codes, i8 or i16 of `enc.shape`."""
        return self._unpack(ops, parts["codes"], enc.shape, enc)

    @property
    def filler(self) -> int:
        """Below 8 bits a number is stored as `code + 2^(bits-1)`: no sign to extend."""
        return 1 << (self.bits - 1)

    def _unpack(self, ops: ArrayOps, packed: Array, shape: tuple[int, ...], enc: Encoding) -> Array:
        bits = self.stored_bits(enc)
        fields = unpack(ops, packed, shape, bits)
        return fields if bits >= 8 else ops.sub(fields, self.filler)

    def scale(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """Scales, f32 of `enc.grid`."""
        return ops.convert(parts["scale"], F32)

    def zero_point(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array | None:
        """Signed zero points, i32 of `enc.grid`; None in the symmetric scheme."""
        if enc.scheme == "symmetric":
            return None
        return ops.convert(self._unpack(ops, parts["zero_point"], enc.grid, enc), np.int32)
