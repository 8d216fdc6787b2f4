"""The numbers that a format has, as the solver of weights takes them: codes and scales.

A code of integers is the integer; one of small floats or of a table is the number that it stands
for, and its zero is 0."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from jq.formats import Affine, Encoding, get_format
from jq.formats.arrays import NUMPY, nearest_codes
from jq.formats.blocks import block_absmax, per_block
from jq.formats.elements import Element
from jq.formats.imported import WithMinimum
from jq.formats.packing import pack
from jq.formats.scaled import Scaled
from jq.passes.recovery._ranges import Candidate, least, search_ranges

# What the largest number of a block is, beside what plain rounding makes of it. Beyond 1 the block
# does without its largest codes, which lie far apart.
WIDTHS = (1.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.15, 1.3, 1.5, 2.0)
Integer = Affine | WithMinimum
Arrays = dict[str, np.ndarray]
Begun = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Grid:
    """Attributes:
    near: the codes nearest to numbers, f32 of any shape, which it may overwrite.
    scales: the scales nearest to numbers, f32 of any shape; None where they stand already.
    zeros: the zeros nearest to numbers, where these are no codes; None where zeros stay."""

    near: Callable[[np.ndarray], np.ndarray]
    scales: Callable[[np.ndarray], np.ndarray] | None
    zeros: Callable[[np.ndarray], np.ndarray] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class FormatGrid(Grid):
    """Attributes:
    begin: scale and zero (f32 of the grid) of a weight, given the importance of its elements (of a
        shape that broadcasts) and its encoding.
    stored: the parts of codes, scales and zeros, in the weight's own shape."""

    begin: Callable[[np.ndarray, np.ndarray, Encoding], Begun]
    stored: Callable[[np.ndarray, np.ndarray, np.ndarray, Encoding], Arrays]


def has_grid(enc: Encoding) -> bool:
    """True of integers, and of other numbers of fewer than 8 bits in blocks with scales."""
    fmt = get_format(enc.format)
    return isinstance(fmt, Integer) or (isinstance(fmt, Scaled) and fmt.element.bits < 8)


def bits_of(enc: Encoding) -> int:
    """Bits of a code."""
    fmt = get_format(enc.format)
    assert isinstance(fmt, Integer | Scaled)
    return fmt.element.bits if isinstance(fmt, Scaled) else fmt.bits


def levels_of(element: Element) -> np.ndarray:
    """The finite numbers of an element, ascending, f32."""
    every = np.asarray(element.decode(NUMPY, np.arange(1 << element.bits, dtype=np.int8)))
    return np.unique(every[np.isfinite(every)]).astype(np.float32)


def packed(levels: np.ndarray, enc: Encoding) -> np.ndarray:
    """The part `codes` of numbers of an element, of `enc.shape`."""
    fmt = get_format(enc.format)
    assert isinstance(fmt, Scaled)
    bits = fmt.element.encode(levels.astype(np.float32), enc.option("rounding", "even"))
    return pack(bits, fmt.stored_bits(enc))


def grid_of(weight: np.ndarray, enc: Encoding) -> FormatGrid:
    """The numbers of a weight f32[K, N]; some formats have one factor for all of it."""
    fmt = get_format(enc.format)
    if isinstance(fmt, Integer):
        return _integers(fmt, enc)
    assert isinstance(fmt, Scaled)
    return _scaled(fmt, weight, enc)


def integers_stored(
    codes: np.ndarray, scale: np.ndarray, zero: np.ndarray, enc: Encoding
) -> Arrays:
    """The parts of integer codes; `zero` counts in the asymmetric scheme alone."""
    fmt = get_format(enc.format)
    if isinstance(fmt, WithMinimum):
        return fmt.with_minimum(codes, scale, -zero * scale, enc)
    assert isinstance(fmt, Affine)
    parts = {"codes": fmt.pack(codes.astype(np.int32), enc), "scale": scale.astype(enc.scale_type)}
    if enc.scheme == "asymmetric":
        parts["zero_point"] = fmt.pack(zero.astype(np.int32), enc)
    return parts


def _integers(fmt: Affine | WithMinimum, enc: Encoding) -> FormatGrid:
    low, high = fmt.limits(enc)
    return FormatGrid(
        lambda x: nearest_codes(x, low, high),
        lambda s: s.astype(enc.scale_type).astype(np.float32),
        lambda weight, importance, own: search_ranges(fmt, weight, importance, own),
        integers_stored,
        zeros=None if isinstance(fmt, Affine) else fmt.zeros,
    )


def _scaled(fmt: Scaled, weight: np.ndarray, enc: Encoding) -> FormatGrid:
    kind, element = fmt.kind(enc), fmt.element
    plain = kind.choose(block_absmax(weight, enc), element, enc)
    levels = levels_of(element)
    between = (levels[1:] + levels[:-1]) / 2

    def near(x: np.ndarray) -> np.ndarray:
        return np.asarray(levels[np.searchsorted(between, x)])

    def scales(s: np.ndarray) -> np.ndarray:
        own = enc.with_shape(s.shape, (1,) * s.ndim)
        return np.asarray(kind.decode(NUMPY, kind.nearest(s, plain, own), own))

    def begin(w: np.ndarray, importance: np.ndarray, own: Encoding) -> Begun:
        most = block_absmax(w, own)
        first = np.where(most > 0, most / np.float32(element.largest), np.float32(1))

        def candidates() -> Iterator[Candidate]:
            for width in WIDTHS:
                scale = scales(first * np.float32(width))
                codes = near(per_block(np.divide, w, scale, own))
                yield scale, np.zeros_like(scale), per_block(np.multiply, codes, scale, own)

        return least(candidates(), w, importance, own)

    def stored(codes: np.ndarray, scale: np.ndarray, zero: np.ndarray, own: Encoding) -> Arrays:
        return {"codes": packed(codes, own), **kind.nearest(scale, plain, own)}

    return FormatGrid(near, scales, begin, stored)
