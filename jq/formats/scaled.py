"""Formats of elements times a scale per block: what the float formats share."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jq.base.errors import FormatError
from jq.formats import checks
from jq.formats.affine_math import ByElement, zero_if_nan
from jq.formats.arrays import NUMPY, Array, ArrayOps
from jq.formats.base import Encoding, Integers, Parts
from jq.formats.blocks import block_absmax, chunks, expand, per_block, reduce_blocks
from jq.formats.elements import Computed, Element, computed, whole
from jq.formats.packing import pack, packed_shape
from jq.formats.scales import FLOAT, Scale


class Scaled(ByElement):
    """`real = element * scale`; the scale is rounded to its type before codes are taken.

    Parts: `codes`, packed along the last axis, and those of the kind of scale."""

    element: ClassVar[Element]
    scales: ClassVar[Scale] = FLOAT
    roundings: ClassVar[tuple[str, ...]] = ("even", "nearest")

    def kind(self, enc: Encoding) -> Scale:
        """The kind of scale."""
        return self.scales

    def options(self, enc: Encoding) -> Mapping[str, Sequence[str]]:
        packing = {"packing": ("bits", "none")} if self.element.bits < 8 else {}
        return {"rounding": self.roundings, **packing, **self.kind(enc).options()}

    def check(self, enc: Encoding) -> None:
        super().check(enc)
        self.kind(enc).check(enc)
        if self.block and sorted(enc.block) != [1] * (len(enc.block) - 1) + [self.block]:
            what = f"{enc.format} cannot use blocks {enc.block}"
            raise FormatError(what, hint=f"one axis needs blocks of {self.block}, the others of 1")

    def storage(self, enc: Encoding) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        codes = (packed_shape(enc.shape, self.stored_bits(enc)), np.dtype(np.int8))
        return {"codes": codes, **self.kind(enc).storage(enc)}

    def element_types(self, enc: Encoding) -> dict[str, np.dtype[Any]]:
        types = {"codes": self.element.element_type, "scale": self.kind(enc).element_type}
        return {name: found for name, found in types.items() if found is not None}

    def decode_elements(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """A scale below 2^-126 is a subnormal number, which devices may take for 0."""
        codes = parts["codes"]
        if "codes" not in self.element_types(enc):
            codes = self.codes(ops, parts, enc)
        scale = self.kind(enc).decode_elements(ops, parts, enc)
        return ops.mul(self.element_of(enc).of_elements(ops, codes), expand(ops, scale, enc))

    def stored_bits(self, enc: Encoding) -> int:
        return 8 if enc.option("packing", "bits") == "none" else self.element.bits

    def of_codes(
        self, codes: np.ndarray, zero: np.ndarray, enc: Encoding
    ) -> tuple[Encoding, dict[str, np.ndarray]] | None:
        if zero.any():
            return None
        bits = codes.view(np.int8) if codes.dtype.kind in "fV" else codes.astype(np.int8)
        return enc, {"codes": pack(bits, self.stored_bits(enc))}

    def scale(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """Scales, f32 of `enc.grid`."""
        return self.kind(enc).decode(ops, parts, enc)

    def element_of(self, enc: Encoding) -> Element:
        """The elements of one tensor, where they are its own."""
        return self.element

    def encode(self, x: np.ndarray, enc: Encoding) -> dict[str, np.ndarray]:
        self.check(enc)
        checks.check_shape(x, enc)
        element = self.element_of(enc)
        parts = self.kind(enc).choose(block_absmax(x, enc), element, enc)
        scale = self.scale(NUMPY, parts, enc)
        packed = np.empty(packed_shape(enc.shape, self.stored_bits(enc)), np.int8)
        for rows, grid, piece in chunks(enc):
            steps = np.atleast_1d(
                per_block(np.divide, checks.as_float32(x[rows]), scale[grid], piece)
            )
            codes = element.encode(steps, enc.option("rounding", "even"))
            packed[rows] = pack(codes, self.stored_bits(enc)).reshape(packed[rows].shape)
        return {"codes": packed, **parts}

    def decode(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        values = self.element_of(enc).decode(ops, self.codes(ops, parts, enc))
        return self.kind(enc).applied(ops, values, parts, enc)

    @property
    def at_run_time(self) -> bool:
        return computed(self.element) is not None

    def quantize_dynamic(self, ops: ArrayOps, x: Array, enc: Encoding) -> dict[str, Array]:
        element = computed(self.element)
        if element is None:
            return super().quantize_dynamic(ops, x, enc)
        parts, steps = self._steps(ops, x, element, enc)
        return {"codes": element.codes(ops, zero_if_nan(ops, steps)), **parts}

    def fake_quantize(self, ops: ArrayOps, x: Array, enc: Encoding) -> Array:
        """`decode` of `quantize_dynamic`, without the codes between them; these have no NaN, but
        the scale of its block is one, or infinite, and all of that becomes NaN."""
        element = computed(self.element_of(enc))
        if element is None:
            return super().fake_quantize(ops, x, enc)
        parts, steps = self._steps(ops, x, element, enc)
        return self.kind(enc).applied(ops, element.nearest(ops, steps), parts, enc)

    def integers_of_data(
        self, ops: ArrayOps, x: Array, enc: Encoding, largest: Array | None = None
    ) -> Integers | None:
        """Nothing is rounded to codes in between."""
        element = whole(self.element)
        if element is None:
            return None
        parts, steps = self._steps(ops, x, element, enc, largest)
        units = ops.mul(element.nearest(ops, zero_if_nan(ops, steps)), 1 / element.unit)
        scale = ops.mul(self.scale(ops, parts, enc), element.unit)
        return Integers(ops.convert(units, np.int8), scale, None, None, enc.block)

    def _steps(
        self,
        ops: ArrayOps,
        x: Array,
        element: Computed,
        enc: Encoding,
        largest: Array | None = None,
    ) -> tuple[Parts, Array]:
        """The parts of the scale by the data themselves, and the data divided by it."""
        if enc.option("rounding", "even") != "even":
            raise FormatError("what is quantized at run time is rounded to even")
        x, kind = ops.convert(x, np.float32), self.kind(enc)
        parts = kind.of_data(ops, _magnitudes(ops, x, enc), element, enc, largest)
        return parts, kind.divided(ops, x, parts, enc, element)

    @property
    def integer_bits(self) -> int | None:
        return None if whole(self.element) is None else 8

    def integers(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Integers | None:
        """Multiples of the smallest number: of e2m1 those of 1/2, up to 12."""
        element = whole(self.element)
        if element is None:
            return None
        scale = ops.mul(self.scale(ops, parts, enc), element.unit)
        multiples = element.multiples(ops, self.codes(ops, parts, enc))
        return Integers(multiples, scale, None, None, enc.block)


def _magnitudes(ops: ArrayOps, x: Array, enc: Encoding) -> Array:
    """The largest magnitude of every block, f32 of `enc.grid`. Bits of magnitudes are in the order
    of the magnitudes, and NaN is above them; samples are rows to a compiler."""
    bits, cut = ops.bitcast(ops.abs(x), np.int32), enc
    if len(enc.shape) > 1 and not any(enc.block[1:]):
        cut = enc.with_shape((enc.shape[0], math.prod(enc.shape[1:])), (enc.block[0], 0))
        bits = ops.reshape(bits, cut.shape)
    found = reduce_blocks(ops, ops.reduce_max, bits, cut)
    return ops.bitcast(ops.reshape(found, enc.grid), np.float32)
