"""Affine integers: `real = scale * (code - zero_point)`.

Codes are *signed* in everything but the definition of the zero point. An unsigned format's
number u is the signed code u - 2^(bits-1), and its zero point is shifted alike, which leaves
`real` as it is: no unsigned type enters a program, where compilers mistake it for a signed one.

Two levels. Values: `codes` (int8, int16) in the logical shape, `scale` (float32) and `zero_point`
(int32) of `enc.grid`. Parts: what is stored, see `storage`."""

from collections.abc import Mapping, Sequence

import numpy as np

from jq.base.errors import FormatError
from jq.formats import affine_math, checks
from jq.formats.affine_math import FULL, HALF, NARROW, StoredIntegers
from jq.formats.arrays import NUMPY, Array, ArrayOps
from jq.formats.base import Encoding, Integers, Levels, Parts, get_format, unpacked
from jq.formats.blocks import block_absmax, block_range, chunks, expand, reduce_blocks
from jq.formats.packing import packed_shape

F32 = np.float32


class Affine(StoredIntegers):
    """Integers of `bits` bits.

    Option `packing`: `bits` (default) packs codes below 8 bits into bytes, `none` keeps one in a
    byte, as values that a program computes are. Option `divisor` (symmetric scheme): the scale is

    * `absmax/127` (default; 127 stands for qmax): codes in [-qmax, qmax];
    * `absmax/127.5` (for qmax + 0.5, as qwix): the full range [-qmax - 1, qmax];
    * `absmax/63` (for 2^(bits - 2) - 1; not with 2 bits): half of the codes, a bit to spare. Those
      of int16 are two int8 digits, which kernels multiply one after the other.

    Asymmetric: scale = (hi - lo) / (2^bits - 1) and zero_point = round(saturate(qmin - lo /
    scale)), where [lo, hi] includes 0 (ONNX's DynamicQuantizeLinear). Rounding is half to even.
    A block whose float32 scale would be below 2^-126 counts as zero: its scale is 1."""

    at_run_time = True

    def integers(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Integers:
        zero = self.zero_point(ops, parts, enc)
        codes, scale = self.codes(ops, parts, enc), self.scale(ops, parts, enc)
        return Integers(codes, scale, zero, None, enc.block)

    def block_levels(self, parts: Parts, enc: Encoding) -> Levels:
        if self.bits > 8:
            raise FormatError(f"no integers in {self.name}")
        found, half = self.integers(NUMPY, parts, enc), 1 << (self.bits - 1)
        codes, scale = np.asarray(found.codes), np.asarray(found.scale)
        if found.zero_point is None:
            return codes, scale, None, None
        if self.bits == 8:
            raise FormatError("no kernel for asymmetric weights of 8 bits in blocks")
        points = np.asarray(found.zero_point, np.int32) + half
        if self.bits > 4:
            return codes + np.int8(half), scale, -scale * points.astype(np.float32), None
        return codes + np.int8(half), scale, None, points.astype(np.int8)

    def limits(self, enc: Encoding) -> tuple[int, int]:
        """Smallest and largest (signed) code."""
        half = 1 << (self.bits - 1)
        if enc.scheme == "symmetric" and _divisor(enc) == HALF:
            return 1 - half // 2, half // 2 - 1
        narrow = enc.scheme == "symmetric" and _divisor(enc) == NARROW
        return (1 - half if narrow else -half), half - 1

    def options(self, enc: Encoding) -> Mapping[str, Sequence[str]]:
        divisors = (NARROW, FULL, HALF) if self.bits > 2 else (NARROW, FULL)
        return {"divisor": divisors, "packing": ("bits", "none")}

    def check(self, enc: Encoding) -> None:
        super().check(enc)
        checks.check_choice(enc, "scale type", enc.scale_type, checks.SCALE_TYPES)
        if enc.option("divisor", "") and enc.scheme == "asymmetric":
            raise FormatError(f"{enc.format}: `divisor` belongs to the symmetric scheme")

    def _scale(self, ops: ArrayOps, lo: Array, hi: Array, enc: Encoding) -> tuple[Array, Array]:
        """Float32 scale before rounding to `scale_type`, and its inverse, of `enc.grid`."""
        if enc.scheme == "symmetric":
            whole = 2.0 ** (self.bits - 1)
            steps = {NARROW: whole - 1, FULL: whole - 0.5, HALF: whole / 2 - 1}[_divisor(enc)]
            return affine_math.scale_of_extent(ops, ops.maximum(ops.abs(lo), ops.abs(hi)), steps)
        extent = ops.sub(ops.maximum(hi, 0), ops.minimum(lo, 0))
        return affine_math.scale_of_extent(ops, extent, 2.0**self.bits - 1)

    def _zero_point(self, ops: ArrayOps, lo: Array, scale: Array, enc: Encoding) -> Array | None:
        """Computed for the numbers of the format itself, then shifted to signed ones."""
        if enc.scheme == "symmetric":
            return None
        half = 1 << (self.bits - 1)
        if not self.unsigned:
            return affine_math.zero_point_of_range(ops, lo, scale, -half, half - 1)
        zero = affine_math.zero_point_of_range(ops, lo, scale, 0, 2 * half - 1)
        return ops.sub(zero, half)

    def parameters(
        self, lo: np.ndarray, hi: np.ndarray, enc: Encoding
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Scale (of `enc.scale_type`) and signed zero point (int32, or None when symmetric), by the
        smallest and largest value of every block."""
        lo, hi = (np.asarray(v, F32).reshape(enc.grid) for v in (lo, hi))
        scale = checks.as_scale(self._scale(NUMPY, lo, hi, enc)[0], enc)
        return scale, self._zero_point(NUMPY, lo, scale.astype(F32), enc)

    def parameters_of(
        self, ops: ArrayOps, lo: Array, hi: Array, enc: Encoding
    ) -> tuple[Array, Array | None]:
        """`parameters` in a program: f32 scale, rounded to `enc.scale_type`, and i32 zero point of
        ranges of `enc.grid`."""
        scale = affine_math.stored_scale(ops, self._scale(ops, lo, hi, enc)[0], enc)
        return scale, self._zero_point(ops, lo, scale, enc)

    def fake_quantize(
        self, ops: ArrayOps, x: Array, enc: Encoding, given: tuple[Array, Array] | None = None
    ) -> Array:
        """`x` quantized and dequantized, f32, with the range (smallest and largest value) of each
        block, or with `given` ones of `enc.grid`."""
        enc, x = unpacked(enc), ops.convert(x, F32)
        if given is None and enc.scale_type == "float32":
            found = self.quantize_dynamic(ops, x, enc)
            codes, scale, zero_point = found["codes"], found["scale"], found.get("zero_point")
        else:
            own = (reduce_blocks(ops, f, x, enc) for f in (ops.reduce_min, ops.reduce_max))
            low, high = given or own
            scale, zero_point = self.parameters_of(ops, low, high, enc)
            codes = self.quantize_static(ops, x, scale, zero_point, enc)
        return self.dequantize(ops, codes, scale, zero_point, enc)

    def quantize(
        self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None, enc: Encoding
    ) -> np.ndarray:
        """Codes of `enc.shape` with given parameters of `enc.grid`, as `quantize_static`."""
        x, scale = np.asarray(x, F32), np.asarray(scale, F32)
        return np.asarray(self._static(NUMPY, x, scale, zero_point, enc))

    def quantize_static(
        self, ops: ArrayOps, x: Array, scale: Array, zero_point: Array | None, enc: Encoding
    ) -> Array:
        """`saturate(round_half_even(x / scale) + zero_point)` of f32, bf16 or f16, computed in f32;
        the zero point is signed, i32. NaN becomes the code of 0."""
        self._check_unpacked(enc)
        return self._static(ops, ops.convert(x, F32), scale, zero_point, enc)

    def _static(
        self, ops: ArrayOps, x: Array, scale: Array, zero_point: Array | None, enc: Encoding
    ) -> Array:
        steps = ops.div(x, expand(ops, scale, enc))
        return affine_math.to_codes(ops, steps, zero_point, self.limits(enc), self.code_type, enc)

    def quantize_dynamic(self, ops: ArrayOps, x: Array, enc: Encoding) -> dict[str, Array]:
        """Values `codes`, `scale` and (asymmetric) `zero_point` with parameters of `x` itself.

        `saturate(round_half_even(x * inv) + zero_point)`, `inv` one division per block. A block
        that holds NaN or an infinity gets a scale of NaN or infinity and decodes to NaN."""
        self._check_unpacked(enc)
        if enc.scale_type != "float32":
            raise FormatError(f"dynamic scales are float32, not {enc.scale_type}")
        x = ops.convert(x, F32)
        lo = reduce_blocks(ops, ops.reduce_min, x, enc)
        hi = reduce_blocks(ops, ops.reduce_max, x, enc)
        scale, inverse = self._scale(ops, lo, hi, enc)
        zero_point = self._zero_point(ops, lo, scale, enc)
        steps = ops.mul(x, expand(ops, inverse, enc))
        codes = affine_math.to_codes(ops, steps, zero_point, self.limits(enc), self.code_type, enc)
        values = {"codes": codes, "scale": scale}
        return values if zero_point is None else values | {"zero_point": zero_point}

    def _check_unpacked(self, enc: Encoding) -> None:
        """Refuses an encoding of packed codes: what a program computes is not packed."""
        if self.stored_bits(enc) < 8:
            what = f"{enc.format} codes of activations are not packed"
            raise FormatError(what, hint="give the encoding the option packing=none")

    def dequantize(
        self, ops: ArrayOps, codes: Array, scale: Array, zero_point: Array | None, enc: Encoding
    ) -> Array:
        """`(codes - zero_point) * scale` in f32, from values."""
        q = codes
        if zero_point is not None:
            q = ops.sub(ops.convert(q, np.int32), expand(ops, zero_point, enc))
        return ops.mul(ops.convert(q, F32), expand(ops, scale, enc))

    def encode(self, x: np.ndarray, enc: Encoding) -> dict[str, np.ndarray]:
        self.check(enc)
        checks.check_shape(x, enc)
        if enc.scheme == "symmetric":
            hi = block_absmax(x, enc)
            lo = hi
        else:
            lo, hi = block_range(x, enc)
        scale, zero_point = self.parameters(lo, hi, enc)
        wide = scale.astype(F32)
        packed = np.empty(packed_shape(enc.shape, self.stored_bits(enc)), self.code_type)
        for rows, grid, piece in chunks(enc):
            zero = None if zero_point is None else zero_point[grid]
            x_piece = checks.as_float32(x[rows])
            codes = affine_math.finite_codes(x_piece, wide[grid], zero, self.limits(enc), piece)
            packed[rows] = self.pack(codes, piece).reshape(packed[rows].shape)
        parts = {"codes": packed, "scale": scale}
        if zero_point is not None:
            parts["zero_point"] = self.pack(zero_point, enc)
        return parts

    def decode(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        codes, scale = self.codes(ops, parts, enc), self.scale(ops, parts, enc)
        return self.dequantize(ops, codes, scale, self.zero_point(ops, parts, enc), enc)


def is_affine(name: str) -> bool:
    """True if a format is codes with a scale and, in the asymmetric scheme, a zero point."""
    return isinstance(get_format(name), Affine)


def affine_format(name: str) -> Affine:
    """The affine format of this name; `FormatError` for another kind."""
    fmt = get_format(name)
    if not isinstance(fmt, Affine):
        raise FormatError(f"{name} is not an affine integer")
    return fmt


def _divisor(enc: Encoding) -> str:
    return enc.option("divisor", NARROW)
