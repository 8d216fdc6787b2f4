"""Formats of elements times a scale per block: what the float formats share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jq.errors import FormatError
from jq.formats import checks
from jq.formats.arrays import Array, ArrayOps
from jq.formats.base import Encoding, Format, Parts
from jq.formats.blocks import expand
from jq.formats.chunks import block_absmax, chunks, decode_pieces, per_block
from jq.formats.elements import Element
from jq.formats.numpy_ops import NUMPY
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
        return {"rounding": self.roundings, **self.kind(enc).options()}

    def check(self, enc: Encoding) -> None:
        checks.check_not_empty(enc)
        checks.check_choice(enc, "scheme", enc.scheme, self.schemes)
        checks.check_options(enc, self.options(enc))
        self.kind(enc).check(enc)

    def storage(self, enc: Encoding) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        codes = (packed_shape(enc.shape, self.element.bits), np.dtype(np.int8))
        return {"codes": codes, **self.kind(enc).storage(enc)}

    def stored_bits(self, enc: Encoding) -> int:
        return self.element.bits

    def of_codes(
        self, codes: np.ndarray, zero: np.ndarray, enc: Encoding
    ) -> tuple[Encoding, dict[str, np.ndarray]] | None:
        if zero.any():
            return None
        bits = codes.view(np.int8) if codes.dtype.kind in "fV" else codes.astype(np.int8)
        return enc, {"codes": pack(bits, self.element.bits)}

    def codes(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """Codes of the elements, i8 of `enc.shape`; below 8 bits they are not negative."""
        return unpack(ops, parts["codes"], enc.shape, self.element.bits)

    def scale(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        """Scales, f32 of `enc.grid`."""
        return self.kind(enc).decode(ops, parts, enc)

    def encode(self, x: np.ndarray, enc: Encoding) -> dict[str, np.ndarray]:
        self.check(enc)
        checks.check_shape(x, enc)
        parts = self.kind(enc).choose(block_absmax(x, enc), self.element, enc)
        scale = self.scale(NUMPY, parts, enc)
        packed = np.empty(packed_shape(enc.shape, self.element.bits), np.int8)
        for rows, grid, piece in chunks(enc):
            steps = np.atleast_1d(
                per_block(np.divide, checks.as_float32(x[rows]), scale[grid], piece)
            )
            codes = self.element.encode(steps, enc.option("rounding", "even"))
            packed[rows] = pack(codes, self.element.bits).reshape(packed[rows].shape)
        return {"codes": packed, **parts}

    def to_numpy(self, parts: Mapping[str, np.ndarray], enc: Encoding) -> np.ndarray:
        return decode_pieces(lambda p, e: np.asarray(self.decode(NUMPY, p, e)), parts, enc)

    def decode(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        values = self.element.decode(ops, self.codes(ops, parts, enc))
        return ops.mul(values, expand(ops, self.scale(ops, parts, enc), enc))


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
