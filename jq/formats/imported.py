"""Unsigned integers with a scale and a minimum for each block: `real = scale * code + minimum`.

As HQQ, MLX and tinygemm quantize: the number of code 0 is any float, where the zero point of an
affine integer is a code (`affine`). ggml's types of this kind (q4_1) have blocks of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from jq.base.errors import FormatError
from jq.formats import checks
from jq.formats.affine_math import ByElement, scale_of_extent, stored_scale
from jq.formats.arrays import NUMPY, Array, ArrayOps
from jq.formats.base import Encoding, Integers, Parts
from jq.formats.blocks import block_range, chunks, expand, full, per_block, reduce_blocks
from jq.formats.elements import Table
from jq.formats.floats import NORMAL_QUANTILES
from jq.formats.packing import pack, packed_shape
from jq.formats.scaled import Scaled

F32, I8 = np.float32, np.dtype(np.int8)


class WithMinimum(ByElement):
    """Codes of `bits` bits from 0 on. Parts: `codes` (packed along the last axis; those of 8 bits
    less 128), `scale` and `minimum`, both in the scale type.

    The range of a block includes 0. A block of zeros has scale 1. With scales of float32 a number
    is computed as `(code + minimum / scale) * scale`: a product and a sum would be rounded once or
    twice, as a compiler joins them. Those of 16 bits have exact products.

    With a `unit`, the minimum is a byte: so many scales, a zero point that is no code."""

    bits: ClassVar[int]
    unit: ClassVar[float | None] = None
    has_minimum = True
    integer_bits = 8

    @property
    def first(self) -> int:
        """The integer that code 0 is stored as."""
        return -128 if self.bits == 8 else 0

    def options(self, enc: Encoding) -> Mapping[str, Sequence[str]]:
        return {"packing": ("bits", "none")} if self.bits < 8 else {}

    def stored_bits(self, enc: Encoding) -> int:
        return 8 if enc.option("packing", "bits") == "none" else self.bits

    def check(self, enc: Encoding) -> None:
        super().check(enc)
        checks.check_choice(enc, "scale type", enc.scale_type, checks.SCALE_TYPES)

    def storage(self, enc: Encoding) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        grid = enc.grid, np.dtype(enc.scale_type)
        codes = packed_shape(enc.shape, self.stored_bits(enc)), I8
        return {"codes": codes, "scale": grid, "minimum": (enc.grid, I8) if self.unit else grid}

    def element_types(self, enc: Encoding) -> dict[str, np.dtype[Any]]:
        return {"codes": np.dtype(ml_dtypes.uint4)} if self.bits == 4 else {}

    def integers(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Integers:
        zero = full(ops, self.first, enc.grid, np.int32) if self.first else None
        scale, minimum = (ops.convert(parts[k], F32) for k in ("scale", "minimum"))
        minimum = ops.mul(ops.mul(minimum, self.unit), scale) if self.unit else minimum
        return Integers(self.codes(ops, parts, enc), scale, zero, minimum, enc.block)

    def with_minimum(
        self, codes: np.ndarray, scale: np.ndarray, minimum: np.ndarray, enc: Encoding
    ) -> dict[str, np.ndarray]:
        """The parts of codes from 0 on, with scales and minima of `enc.grid`."""
        stored = pack((codes + self.first).astype(np.int8), self.stored_bits(enc))
        scale = scale.astype(enc.scale_type)
        if self.unit:
            minimum = np.clip(np.rint(minimum / scale.astype(F32) / F32(self.unit)), -128, 127)
        dtype = I8 if self.unit else scale.dtype
        return {"codes": stored, "scale": scale, "minimum": minimum.astype(dtype)}

    def limits(self, enc: Encoding) -> tuple[int, int]:
        """Smallest and largest code."""
        return 0, (1 << self.bits) - 1

    def parameters(
        self, lo: np.ndarray, hi: np.ndarray, enc: Encoding
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scale (of `enc.scale_type`) and zero, f32: what code would stand for 0."""
        # At most -2^-24 in float16, where 0 would do.
        least = lo if self.unit else -checks.as_scale(-lo, enc).astype(F32)
        step, _ = scale_of_extent(NUMPY, hi - least, (1 << self.bits) - 1)
        scale = checks.as_scale(step, enc)
        return scale, self.zeros(-least / scale.astype(F32))

    def zeros(self, zero: np.ndarray) -> np.ndarray:
        """The nearest zeros that can be stored, f32 of any shape."""
        unit = self.unit
        return np.clip(np.rint(zero / unit), -127, 128) * F32(unit) if unit else zero

    def fake_quantize(self, ops: ArrayOps, x: Array, enc: Encoding) -> Array:
        if self.unit is None:
            return super().fake_quantize(ops, x, enc)
        x, most = ops.convert(x, F32), (1 << self.bits) - 1
        lo = ops.minimum(reduce_blocks(ops, ops.reduce_min, x, enc), 0)
        hi = ops.maximum(reduce_blocks(ops, ops.reduce_max, x, enc), 0)
        scale = stored_scale(ops, scale_of_extent(ops, ops.sub(hi, lo), most)[0], enc)
        places = ops.round_even(ops.div(ops.div(lo, scale), full(ops, self.unit, enc.grid, F32)))
        least, steps = ops.mul(ops.maximum(places, -128.0), self.unit), expand(ops, scale, enc)
        codes = ops.sub(ops.div(x, steps), expand(ops, least, enc))  # never joined, see `decode`
        codes = ops.minimum(ops.maximum(ops.round_even(codes), 0.0), float(most))
        return ops.mul(ops.add(codes, expand(ops, least, enc)), steps)

    def encode(self, x: np.ndarray, enc: Encoding) -> dict[str, np.ndarray]:
        self.check(enc)
        checks.check_shape(x, enc)
        scale, zero = self.parameters(*block_range(x, enc), enc)
        steps, codes = scale.astype(F32), np.empty(enc.shape, np.int16)
        least = -zero * steps
        ways = [(np.divide, steps), (np.add, zero)] if self.unit else []
        for rows, grid, piece in chunks(enc):
            values = checks.as_float32(x[rows])
            for apply, by in ways or [(np.subtract, least), (np.divide, steps)]:
                values = per_block(apply, values, by[grid], piece).reshape(piece.shape)
            codes[rows] = np.clip(np.rint(values), *self.limits(enc))
        return self.with_minimum(codes, scale, least, enc)

    def decode(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        codes = ops.convert(self.codes(ops, parts, enc), F32)
        codes = ops.sub(codes, self.first) if self.first else codes
        scale, minimum = (ops.convert(parts[k], F32) for k in ("scale", "minimum"))
        steps = expand(ops, scale, enc)
        if self.unit or enc.scale_type == "float32":  # a sum before a product is not joined with it
            least = ops.mul(minimum, self.unit) if self.unit else ops.div(minimum, scale)
            return ops.mul(ops.add(codes, expand(ops, least, enc)), steps)
        return ops.add(ops.mul(codes, steps), expand(ops, minimum, enc))  # exact products


for bits, end in {2: ", four per byte", 4: ", two per byte", 8: ""}.items():
    text = f"unsigned {bits}-bit integers with a scale and a minimum per block{end}"
    own = {"name": f"uint{bits}_min", "bits": bits, "description": text}
    type(f"UInt{bits}Min", (WithMinimum,), own)
for bits in (2, 3, 4):
    text = f"unsigned {bits}-bit integers with a scale and a zero point between codes, a byte"
    more = {"name": f"uint{bits}_zero", "bits": bits, "description": text}
    type(f"UInt{bits}Zero", (WithMinimum,), {**more, "unit": 2.0 ** (bits - 7)})


# Codes that are places in a table of numbers, which belongs to the tensor: k-means and the like.
#
# `real = scale * table[code]`. The table is the encoding's option `table`, numbers separated by
# commas, so that kernels have it as a constant, as they have that of `nf4`. Without it the numbers
# are those of the class.
TABLE = "table"


@dataclass(frozen=True)
class _Places(Table):
    """A table in any order."""

    def encode(self, x: np.ndarray, rounding: str) -> np.ndarray:
        order = np.argsort(np.asarray(self.values, F32), kind="stable")
        ascending = Table(tuple(np.asarray(self.values, F32)[order].tolist()))
        return order.astype(np.int8)[ascending.encode(x, rounding)]


class Codebook(Scaled):
    """Any blocks; a scale of 1 where the model has none."""

    bits: ClassVar[int]
    element: ClassVar[Table]
    roundings = ("nearest",)

    def options(self, enc: Encoding) -> Mapping[str, Sequence[str]]:
        return {**super().options(enc), TABLE: (enc.option(TABLE, ""),)}

    def check(self, enc: Encoding) -> None:
        super().check(enc)
        try:
            numbers = self.element_of(enc).values
        except ValueError:
            numbers = ()
        if len(numbers) != 1 << self.bits or not np.isfinite(numbers).all():
            raise FormatError(f"{enc.format}: the option `table` is no {1 << self.bits} numbers")

    def element_of(self, enc: Encoding) -> Table:
        text = enc.option(TABLE, "")
        return _Places(tuple(map(float, text.split(","))) if text else self.element.values)

    def written(self, numbers: np.ndarray) -> str:
        """A table as the option has it; the last number fills it up."""
        filled = np.pad(np.asarray(numbers, F32), (0, (1 << self.bits) - numbers.size), "edge")
        return ",".join(repr(float(n)) for n in filled)


class Codebook2(Codebook):
    name, bits, element = "codebook2", 2, Table((-1.0, 0.0, 0.5, 1.0))
    description = "places in a table of 4 numbers of the tensor's own, scaled"


class Codebook4(Codebook):
    name, bits, element = "codebook4", 4, Table(NORMAL_QUANTILES)
    description = "places in a table of 16 numbers of the tensor's own, scaled"
