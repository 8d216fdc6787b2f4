"""Formats of elements times a scale per block: what the float formats share."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jq.base.errors import FormatError
from jq.formats import checks
from jq.formats.affine_math import zero_if_nan
from jq.formats.arrays import NUMPY, Array, ArrayOps
from jq.formats.base import Encoding, Format, Integers, Parts
from jq.formats.blocks import (
    block_absmax,
    chunks,
    decode_pieces,
    expand,
    full,
    per_block,
    reduce_blocks,
)
from jq.formats.elements import Element, computed, whole
from jq.formats.packing import pack, packed_shape, unpack
from jq.formats.scales import Scale


class Scaled(Format):
    """`real = element * scale`; the scale is rounded to its type before codes are taken.

    Parts: `codes`, packed along the last axis, and those of the kind of scale.
    """

    element: ClassVar[Element]
    roundings: ClassVar[tuple[str, ...]] = ("even", "nearest")

    @abstractmethod
    def kind(self, enc: Encoding) -> Scale:
        """The kind of scale."""

    def options(self, enc: Encoding) -> Mapping[str, Sequence[str]]:
        packing = {"packing": ("bits", "none")} if self.element.bits < 8 else {}
        return {"rounding": self.roundings, **packing, **self.kind(enc).options()}

    def check(self, enc: Encoding) -> None:
        checks.check_not_empty(enc)
        checks.check_choice(enc, "scheme", enc.scheme, self.schemes)
        checks.check_options(enc, self.options(enc))
        self.kind(enc).check(enc)

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
        return ops.mul(self.element.of_elements(ops, codes), expand(ops, scale, enc))

    def stored_bits(self, enc: Encoding) -> int:
        return 8 if enc.option("packing", "bits") == "none" else self.element.bits

    def of_codes(
        self, codes: np.ndarray, zero: np.ndarray, enc: Encoding
    ) -> tuple[Encoding, dict[str, np.ndarray]] | None:
        if zero.any():
            return None
        bits = codes.view(np.int8) if codes.dtype.kind in "fV" else codes.astype(np.int8)
        return enc, {"codes": pack(bits, self.stored_bits(enc))}

    def codes(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """Codes of the elements, i8 of `enc.shape`; below 8 bits they are not negative."""
        return unpack(ops, parts["codes"], enc.shape, self.stored_bits(enc))

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

    def to_numpy(self, parts: Mapping[str, np.ndarray], enc: Encoding) -> np.ndarray:
        return decode_pieces(lambda p, e: np.asarray(self.decode(NUMPY, p, e)), parts, enc)

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
        if enc.option("rounding", "even") != "even":
            raise FormatError("what is quantized at run time is rounded to even")
        x = ops.convert(x, np.float32)
        absmax = reduce_blocks(ops, ops.reduce_max, ops.abs(x), enc)
        parts = self.kind(enc).of_data(ops, absmax, element, enc)
        steps = self.kind(enc).applied(ops, x, parts, enc, inverse=True)
        return {"codes": element.codes(ops, zero_if_nan(ops, steps)), **parts}

    def fake_quantize(self, ops: ArrayOps, x: Array, enc: Encoding) -> Array:
        """`decode` of `quantize_dynamic`, without the codes between them."""
        element = computed(self.element_of(enc))
        if element is None:
            return super().fake_quantize(ops, x, enc)
        if enc.option("rounding", "even") != "even":
            raise FormatError("fake quantization rounds to even")
        x, kind = ops.convert(x, np.float32), self.kind(enc)
        absmax = reduce_blocks(ops, ops.reduce_max, ops.abs(x), enc)
        parts = kind.of_data(ops, absmax, element, enc)
        steps = kind.applied(ops, x, parts, enc, inverse=True)
        return kind.applied(ops, element.nearest(ops, steps), parts, enc)

    @property
    def integer_bits(self) -> int | None:
        return None if whole(self.element) is None else 8

    def integers(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Integers | None:
        """Multiples of the smallest number: of e2m1 those of 1/2, up to 12."""
        element = whole(self.element)
        if element is None:
            return None
        unit = full(ops, element.unit, enc.grid, np.float32)
        scale = ops.mul(self.scale(ops, parts, enc), unit)
        multiples = element.multiples(ops, self.codes(ops, parts, enc))
        return Integers(multiples, scale, None, None, enc.block)


def one_block(enc: Encoding, size: int) -> None:
    """Refuses all but: one axis is cut into blocks of `size`, the others into single indices."""
    if sorted(enc.block) != [1] * (len(enc.block) - 1) + [size]:
        raise FormatError(
            f"{enc.format} cannot use blocks {enc.block}",
            hint=f"one axis needs blocks of {size}, the others of 1",
        )


def block_along(axis: int, size: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """`size` along `axis`, 1 along the others."""
    return tuple(size if i == axis % len(shape) else 1 for i in range(len(shape)))
